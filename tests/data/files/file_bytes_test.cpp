// Compressed files: how much of them comes into memory.
#include "bantam/data/files/file_bytes.h"

#include "tests/data/formats/array_files.h"
#include "tests/data/formats/format_files.h"

namespace bantam::file_bytes_test {
namespace {

using testing::message_of;

/// Streams of zeros become a thousandth: small files would fill the memory.
TEST(FileBytes, AFewBytesDoNotFillTheMemory) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "zeros.gz";
  const std::int64_t compressed = std::int64_t{1} << 20, most = most_decompressed(compressed);
  EXPECT_EQ(most, (std::int64_t{128} << 20) + 100 * compressed);
  const std::string zeros = testing::gzipped(std::string(192 << 20, '\0'));
  ASSERT_LT(most_decompressed(std::ssize(zeros)), std::int64_t{192} << 20);
  testing::write_file(path, zeros);
  const auto file = open_file_bytes(path);
  file->fetch(1 << 20);
  EXPECT_EQ(file->size(), 1 << 20) << "as far as it is needed";
  EXPECT_CONTAINS(message_of<DataError>([&] { file->fetch(std::int64_t{1} << 30); }),
                  path.string() + ": has more than");
  EXPECT_LE(file->size(), most_decompressed(std::ssize(zeros)) + (1 << 20));
}

TEST(FileBytes, WhatIsNoMoreIsRead) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder.path() / "some.gz", testing::gzipped(std::string(64 << 20, 'a')));
  const auto file = open_file_bytes(folder.path() / "some.gz");
  file->fetch(std::int64_t{1} << 40);
  EXPECT_EQ(file->size(), 64 << 20);
}

}  // namespace
}  // namespace bantam::file_bytes_test
