// CIFAR-10 from small files in the official layout that the test writes, and every way in which they can be wrong.
#include "bantam/data/formats/cifar10.h"

#include <fstream>

#include "bantam/base/error.h"
#include "bantam/base/sha256.h"
#include "tests/data/formats/pickle_files.h"
#include "tests/data/support.h"
#include "tests/small_stack.h"

namespace bantam::cifar10_test {
namespace {

using testing::DatasetSplits;
using testing::message_of;
using testing::read_splits;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

constexpr std::int64_t kRecords = 3;
constexpr std::int64_t kRecordBytes = 3073;
const char* const kNames[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                              "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

std::uint8_t plane_byte(int file, std::int64_t record, int channel, std::int64_t position) {
  return static_cast<std::uint8_t>(1 + (file * 101 + record * 53 + channel * 17 + position * 7) % 255);
}
int label_of(int file, std::int64_t record) { return static_cast<int>((file * 3 + record + 1) % 10); }

std::string record_of(int file, std::int64_t record) {
  std::string bytes(1, static_cast<char>(label_of(file, record)));
  for (int c = 0; c < 3; ++c)
    for (std::int64_t p = 0; p < 1024; ++p) bytes.push_back(static_cast<char>(plane_byte(file, record, c, p)));
  return bytes;
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary);
  stream << bytes;
  ASSERT_TRUE(stream.good());
}

class Cifar10Test : public ::testing::Test {
 protected:
  void SetUp() override { write_all(folder_.path()); }
  void write_all(const fs::path& folder) {
    for (int f = 0; f < 6; ++f) {
      std::string bytes;
      for (std::int64_t r = 0; r < kRecords; ++r) bytes += record_of(f, r);
      write(folder / kNames[f], bytes);
    }
  }
  Cifar10Options options() const { return {.path = folder_.path(), .records_per_file = kRecords}; }
  DatasetSplits read() { return read_splits(runtime_, cifar10_readers(options())); }
  std::string error() {
    return message_of<DataError>([&] { (void)read(); });
  }
  fs::path file(int f) const { return folder_.path() / kNames[f]; }

  TemporaryFolder folder_;
  Runtime runtime_{{.threads = 2}};
};

void expect_images(const Dataset& set, int first_file) {
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const int file = first_file + static_cast<int>(i / kRecords);
    const std::int64_t record = i % kRecords;
    EXPECT_EQ(set.labels()[static_cast<std::size_t>(i)], label_of(file, record));
    for (std::int64_t p = 0; p < 1024; ++p)
      for (int c = 0; c < 3; ++c)
        ASSERT_EQ(set.images()[static_cast<std::size_t>((i * 1024 + p) * 3 + c)], plane_byte(file, record, c, p))
            << "image " << i << ", pixel " << p << ", channel " << c;
  }
}

TEST_F(Cifar10Test, PlanesBecomePixelsInTheFilesOrder) {
  const DatasetSplits splits = read();
  EXPECT_EQ(splits.train->size(), 5 * kRecords);
  EXPECT_EQ(splits.test->size(), kRecords);
  EXPECT_EQ(splits.train->image_shape(), (Shape{32, 32, 3}));
  EXPECT_EQ(splits.train->classes(), 10);
  EXPECT_EQ(splits.train->class_names()[6], "frog");
  expect_images(*splits.train, 0);
  expect_images(*splits.test, 5);
}

TEST_F(Cifar10Test, ASmallStackDoes) {
  Runtime alone({.threads = 1});
  testing::on_small_stack(128 << 10, [&] { expect_images(*read_splits(alone, cifar10_readers(options())).train, 0); });
}

TEST_F(Cifar10Test, FindsTheFolderThatTheArchiveUnpacksTo) {
  const TemporaryFolder outer;
  fs::create_directory(outer.path() / "cifar-10-batches-bin");
  write_all(outer.path() / "cifar-10-batches-bin");
  Cifar10Options nested = options();
  nested.path = outer.path();
  expect_images(*read_splits(runtime_, cifar10_readers(nested)).train, 0);
}

/// The files' bytes, by their names.
testing::Members binary_members() {
  testing::Members members;
  for (int f = 0; f < 6; ++f) {
    std::string bytes;
    for (std::int64_t r = 0; r < kRecords; ++r) bytes += record_of(f, r);
    members.emplace_back(kNames[f], bytes);
  }
  return members;
}

/// The same as Python 2 pickled them.
testing::Members python_members() {
  testing::Members members;
  for (int f = 0; f < 6; ++f) {
    std::vector<int> labels;
    std::string pixels;
    for (std::int64_t r = 0; r < kRecords; ++r) {
      labels.push_back(label_of(f, r));
      pixels += record_of(f, r).substr(1);
    }
    const std::string name(kNames[f]);
    members.emplace_back(name.substr(0, name.size() - 4),
                         testing::python2_batch({{"labels", labels}}, kRecords, pixels));
  }
  return members;
}

// Each form that the set is distributed in, as a file, in a folder, and unpacked there.
TEST_F(Cifar10Test, EveryFormHasTheSameImages) {
  const std::string binary = testing::gzipped(testing::tar_archive("cifar-10-batches-bin", binary_members()));
  const std::string python = testing::gzipped(testing::tar_archive("cifar-10-batches-py", python_members()));
  const auto expect_same = [&](const fs::path& path, bool verified) {
    SCOPED_TRACE(path.string());
    Cifar10Options form = options();
    form.path = path;
    form.sha256.emplace();
    for (std::size_t f = 0; f < 6; ++f)
      (*form.sha256)[f] = verified ? sha256_of(binary_members()[f].second) : "of no other form";
    const SampleSplits splits = cifar10_readers(form);
    EXPECT_EQ(splits.train->resident_bytes(), static_cast<std::uint64_t>(5 * kRecords * kRecordBytes));
    const DatasetSplits read = read_splits(runtime_, splits, true);
    expect_images(*read.train, 0);
    expect_images(*read.test, 5);
  };
  const TemporaryFolder one, two, three, four, five;
  testing::write_file(one.path() / "cifar-10-binary.tar.gz", binary);
  expect_same(one.path(), true);
  expect_same(one.path() / "cifar-10-binary.tar.gz", true);
  testing::write_file(two.path() / "cifar-10-python.tar.gz", python);
  expect_same(two.path(), false);
  testing::write_file(three.path() / "plain.tar", testing::tar_archive("x", binary_members()));
  expect_same(three.path() / "plain.tar", true);
  for (const auto& [name, bytes] : python_members())
    testing::write_file(four.path() / "cifar-10-batches-py" / name, bytes);
  expect_same(four.path(), false);
  for (const auto& [name, bytes] : binary_members())
    testing::write_file(five.path() / (name + ".gz"), testing::gzipped(bytes));
  expect_same(five.path(), true);
}

TEST_F(Cifar10Test, DamagedArchivesAreNamed) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "cifar-10-binary.tar.gz";
  Cifar10Options form = options();
  form.path = folder.path();
  const auto told = [&](const std::string& bytes) {
    testing::write_file(path, bytes);
    return message_of<DataError>([&] { (void)read_splits(runtime_, cifar10_readers(form)); });
  };
  testing::Members members = binary_members();
  const std::string whole = testing::gzipped(testing::tar_archive("x", members));
  EXPECT_CONTAINS(told(whole.substr(0, whole.size() / 2)), path.string() + ": cannot be decompressed: unexpected end");
  EXPECT_CONTAINS(told("no archive"), path.string() + ": is no tar archive that can be read: ");
  members[2].second.resize(100);
  EXPECT_CONTAINS(told(testing::tar_archive("x", members)),
                  path.string() + "(data_batch_3.bin): has 100 bytes, expected 9,219");
  members.erase(members.begin() + 2);
  EXPECT_CONTAINS(told(testing::tar_archive("x", members)),
                  path.string() + ": has neither data_batch_3.bin nor data_batch_3. CIFAR-10 is read from");
  members.push_back(members[0]);
  members.push_back(python_members()[2]);
  EXPECT_CONTAINS(told(testing::tar_archive("x", members)), "has two members data_batch_1.bin");
}

TEST_F(Cifar10Test, MutatedArchivesAndPicklesAreReadOrRefused) {
  const TemporaryFolder folder;
  Cifar10Options form = options();
  form.path = folder.path();
  const auto read = [&] { testing::read_all(cifar10_readers(form)); };
  const std::string archive = testing::gzipped(testing::tar_archive("cifar-10-batches-py", python_members()));
  EXPECT_GT(testing::read_damaged(folder.path() / "cifar-10-python.tar.gz", archive, 500, read, folder.path().string()),
            200);
  const std::string plain = testing::tar_archive("x", binary_members());
  EXPECT_GT(testing::read_damaged(folder.path() / "cifar-10-python.tar.gz", plain, 1000, read, folder.path().string()),
            200);
  fs::remove(folder.path() / "cifar-10-python.tar.gz");
  for (const auto& [name, bytes] : python_members()) testing::write_file(folder.path() / name, bytes);
  EXPECT_GT(testing::read_damaged(folder.path() / "data_batch_3", python_members()[2].second, 1000, read,
                                  folder.path().string()),
            200);
}

TEST_F(Cifar10Test, LimitKeepsTheFirstTrainingImages) {
  for (const std::int64_t limit : {std::int64_t{1}, kRecords + 1, std::int64_t{1000}}) {
    SampleSplits limited = cifar10_readers(options());
    limited.train = first_samples(limited.train, limit);
    const DatasetSplits splits = read_splits(runtime_, limited);
    EXPECT_EQ(splits.train->size(), std::min(limit, 5 * kRecords));
    EXPECT_EQ(splits.test->size(), kRecords);
    expect_images(*splits.train, 0);
  }
}

TEST_F(Cifar10Test, MemoryComesFromTheRuntimeAndGoesBack) {
  const auto input = [&] { return runtime_.allocator(Device::cpu()).stats().by_category[Category::input]; };
  const std::uint64_t before = input();
  {
    const DatasetSplits splits = read();
    EXPECT_GE(input() - before, static_cast<std::uint64_t>(6 * kRecords * 3072));
  }
  EXPECT_EQ(input(), before);
}

TEST_F(Cifar10Test, AMissingFileSaysWhereToGetItAndItsSum) {
  fs::remove(file(3));
  const std::string message = error();
  EXPECT_CONTAINS(message, file(3).string());
  EXPECT_CONTAINS(message, "No such file");
  EXPECT_CONTAINS(message, "cifar-10-binary.tar.gz");
  EXPECT_CONTAINS(message, "https://www.cs.toronto.edu/~kriz/cifar.html");
  EXPECT_CONTAINS(message, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48");
}

TEST_F(Cifar10Test, AFolderInPlaceOfAFileIsMissing) {
  fs::remove(file(5));
  fs::create_directory(file(5));
  EXPECT_CONTAINS(error(), "it is a folder");
}

TEST_F(Cifar10Test, AShortFileNamesRecordAndOffset) {
  fs::resize_file(file(1), 2 * kRecordBytes + 100);
  std::string message = error();
  EXPECT_CONTAINS(message, file(1).string());
  EXPECT_CONTAINS(message, "has 6,246 bytes, expected 9,219 bytes");
  EXPECT_CONTAINS(message, "record 2 at byte offset 6146 is cut short");
  fs::resize_file(file(1), kRecordBytes);
  EXPECT_CONTAINS(error(), "record 1 at byte offset 3073 is missing");
}

TEST_F(Cifar10Test, ALongFileIsRefused) {
  fs::resize_file(file(0), kRecords * kRecordBytes + 1);
  EXPECT_CONTAINS(error(), "there is more after record 2, at byte offset 9219");
}

TEST_F(Cifar10Test, ALabelAboveNineNamesRecordAndOffset) {
  std::string bytes = record_of(4, 0) + record_of(4, 1) + record_of(4, 2);
  bytes[2 * kRecordBytes] = 10;
  write(file(4), bytes);
  const std::string message = error();
  EXPECT_CONTAINS(message, file(4).string());
  EXPECT_CONTAINS(message, "record 2 at byte offset 6146 has the label 10");
}

// What `check` cannot see any more is told by the read that meets it.
TEST_F(Cifar10Test, AReadNamesFileAndRecord) {
  const SampleSplits splits = cifar10_readers(options());
  splits.train->check(false, 1);
  fs::resize_file(file(2), kRecordBytes + 7);
  std::vector<std::byte> image(32 * 32 * 3), label(4);
  const std::vector<std::span<std::byte>> fields = {image, label};
  splits.train->read(2 * kRecords, fields);
  const std::string message = message_of<DataError>([&] { splits.train->read(2 * kRecords + 1, fields); });
  EXPECT_CONTAINS(message, file(2).string());
  EXPECT_CONTAINS(message, "cannot be read: it ends before byte 6146 (record 1 at byte offset 3073)");
}

TEST_F(Cifar10Test, VerifyRefusesOtherBytes) {
  const std::string message =
      message_of<DataError>([&] { (void)read_splits(runtime_, cifar10_readers(options()), true); });
  EXPECT_CONTAINS(message, "has the SHA-256 ");
  EXPECT_CONTAINS(message, "but the official file has ");
}

TEST_F(Cifar10Test, VerifyAcceptsTheExpectedSumsAndNoOthers) {
  Cifar10Options verified = options();
  verified.sha256.emplace();
  for (int f = 0; f < 6; ++f) {
    std::string bytes;
    for (std::int64_t r = 0; r < kRecords; ++r) bytes += record_of(f, r);
    (*verified.sha256)[static_cast<std::size_t>(f)] = sha256_of(bytes);
  }
  for (const std::int64_t limit : {5 * kRecords, kRecords + 1}) {  // a limit keeps less, but checks all
    SampleSplits limited = cifar10_readers(verified);
    limited.train = first_samples(limited.train, limit);
    const DatasetSplits splits = read_splits(runtime_, limited, true);
    expect_images(*splits.train, 0);
    expect_images(*splits.test, 5);
  }
  std::string bytes = record_of(3, 0) + record_of(3, 1) + record_of(3, 2);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write(file(3), bytes);
  const std::string message =
      message_of<DataError>([&] { (void)read_splits(runtime_, cifar10_readers(verified), true); });
  EXPECT_CONTAINS(message, file(3).string());
  EXPECT_CONTAINS(message, (*verified.sha256)[3]);
}

TEST_F(Cifar10Test, FactsNeedNoFiles) {
  const SampleSplits splits = cifar10_readers({.path = "/nowhere"});
  EXPECT_EQ(splits.train->facts().size, 50000);
  EXPECT_EQ(splits.validation->facts().size, 10000);
  EXPECT_EQ(first_samples(splits.train, 7)->facts().size, 7);
}

}  // namespace
}  // namespace bantam::cifar10_test
