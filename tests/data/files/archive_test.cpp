// Tar archives whose members are larger than what is read here.
#include "bantam/data/files/archive.h"

#include "tests/cpu_seconds.h"
#include "tests/data/formats/array_files.h"
#include "tests/data/formats/format_files.h"

namespace bantam::archive_test {
namespace {

using testing::message_of;

/// A member's header, of which `bytes` would follow.
std::string tar_header(const std::string& name, std::int64_t bytes) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", bytes));
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, std::string("ustar\00000", 8));
  int sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  return header;
}

TEST(Archive, MembersAreNoLargerThanIsAsked) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "a.tar.gz";
  const std::string some(700, 'a'), padding(324, '\0');
  const std::string first = tar_header("x/a", 700) + some + padding, end(1024, '\0');
  testing::write_file(path, testing::gzipped(first + tar_header("x/b", 700) + some + padding + end));
  EXPECT_EQ(read_members(path, {"a", "b"}, 1400).size(), 2u);
  EXPECT_EQ(message_of<DataError>([&] {
              (void)read_members(path, {"a", "b"}, 1399);
            }),
            path.string() + "(x/b): has more than 699 bytes")
      << "together";
  // Neither is what is passed over: 3 GiB of zeros are three megabytes of the file. Nothing of them is decompressed.
  for (const std::string name : {"x/b", "readme"}) {
    const std::string large = first + tar_header(name, std::int64_t{3} << 30) + std::string(64 << 20, '\0');
    testing::write_file(path, testing::gzipped(large));
    std::string error;
    EXPECT_LT(testing::cpu_seconds([&] {
                error = message_of<DataError>([&] { (void)read_members(path, {"a", "b"}, 1 << 20); });
              }),
              0.1);
    EXPECT_EQ(error, path.string() +
                         ": has members of more than 1,073,741,824 bytes; the archives that are read here have fewer");
  }
}

}  // namespace
}  // namespace bantam::archive_test
