// .npz archives that the test writes, stored and deflated, with Keras's names and others; every way in which they can
// be wrong; and training on them.
#include "bantam/data/files/zip.h"
#include "tests/data/formats/array_files.h"
#include "tests/data/formats/short_run.h"

namespace bantam::npz_test {
namespace {

using testing::fetched;
using testing::Members;
using testing::message_of;
using testing::npy;
using testing::open_format;
using testing::TemporaryFolder;
using testing::write_file;

constexpr std::int64_t kTrain = 24, kTest = 9;

std::string images(std::int64_t first, std::int64_t count) {
  std::vector<std::uint8_t> pixels;
  for (std::int64_t i = first; i < first + count; ++i)
    for (std::int64_t p = 0; p < 30; ++p) pixels.push_back(testing::ramp_pixel(i, p));
  return npy("|u1", fmt::format("{}, 6, 5", count), pixels);
}

std::string labels(std::int64_t first, std::int64_t count) {
  std::vector<std::uint8_t> values;
  for (std::int64_t i = first; i < first + count; ++i)
    values.push_back(static_cast<std::uint8_t>(testing::ramp_label(i, 3)));
  return npy("|u1", fmt::format("{},", count), values);
}

Members keras_members() {
  return {{"x_test.npy", images(1000, kTest)},
          {"x_train.npy", images(0, kTrain)},
          {"y_train.npy", labels(0, kTrain)},
          {"y_test.npy", labels(1000, kTest)}};
}

/// One body for stored archives (false) and deflated ones (true).
class NpzTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { put(keras_members()); }
  std::filesystem::path path() const { return folder_.path() / "set.npz"; }
  void put(const Members& members) const { write_file(path(), testing::zip_archive(members, GetParam())); }
  SampleSplits open(const std::string& more = "") const {
    return open_format("npz", "path: $/set.npz" + more, folder_.path());
  }
  std::string error(const std::string& more = "") const {
    return message_of<DataError>([&] { testing::read_all(open(more)); });
  }

  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Files, NpzTest, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "deflated" : "stored"); });

TEST_P(NpzTest, KerasNamesAreTheDefault) {
  const SampleSplits splits = open();
  EXPECT_EQ(splits.train->facts().size, kTrain);
  EXPECT_EQ(splits.validation->facts().size, kTest);
  EXPECT_EQ(splits.validation->facts().image_shape, (Shape{6, 5, 1}));
  EXPECT_EQ(splits.validation->facts().class_names, (std::vector<std::string>{"0", "1", "2"}));
  for (std::int64_t i = 0; i < kTest; ++i) {
    const std::string pixels = fetched(*splits.validation, i)[0];
    for (std::size_t p = 0; p < 30; ++p)
      ASSERT_EQ(static_cast<std::uint8_t>(pixels[p]), testing::ramp_pixel(1000 + i, static_cast<std::int64_t>(p)));
    EXPECT_EQ(testing::label_of(*splits.validation, i), testing::ramp_label(1000 + i, 3));
  }
  EXPECT_EQ(splits.train->resident_bytes(), GetParam() ? 128u + 24 * 30 + 128 + 24 : 0u);
}

TEST_P(NpzTest, OtherNamesAndASplit) {
  put({{"pictures.npy", images(0, kTrain)}, {"kinds.npy", labels(0, kTrain)}});
  const SampleSplits splits = open(", keys: {images: pictures, labels: kinds}, split: 0.25, classes: [a, b, c]");
  EXPECT_EQ(splits.train->facts().size, 18);
  EXPECT_EQ(splits.validation->facts().size, 6);
  EXPECT_EQ(splits.train->facts().class_names[2], "c");
  EXPECT_CONTAINS(error(), "set.npz: has no member 'x_train.npy'; it has kinds.npy and pictures.npy");
  const auto refused = [&](const std::string& keys) {
    return message_of<ConfigError>([&] { (void)open(", keys: " + keys); });
  };
  EXPECT_CONTAINS(refused("{images: pictures}"), "expected the key 'labels' or 'targets'");
  EXPECT_CONTAINS(refused("{images: pictures, labels: kinds, test_images: pictures}"), "expected 'test_labels'");
  EXPECT_CONTAINS(refused("{images: pictures, labels: kinds}, classes: [a, b, a]"), "are both called 'a'");
  EXPECT_CONTAINS(refused("{image: pictures, labels: kinds}"), "images");
}

TEST_P(NpzTest, WhatIsWrongIsNamed) {
  Members members = keras_members();
  members[1].second = members[2].second;
  put(members);
  EXPECT_CONTAINS(error(), "set.npz(x_train.npy): is (24,) uint8; expected (samples,");
  const std::string whole = testing::zip_archive(keras_members(), GetParam());
  write_file(path(), whole.substr(0, whole.size() - 30));
  EXPECT_CONTAINS(error(), "set.npz: is no zip archive that can be read: it has no central directory");
  std::string other = whole;
  const std::size_t middle = other.find("x_train.npy") + 400;  // in the images
  other[middle] = static_cast<char>(other[middle] ^ 1);
  write_file(path(), other);
  const std::string damaged = GetParam() ? error() : "";  // one pixel of a stored array is another number
  EXPECT_CONTAINS(damaged, GetParam() ? "set.npz(x_train.npy): cannot be decompressed: " : "");
  std::filesystem::remove(path());
  EXPECT_CONTAINS(error(), "set.npz: cannot be read: No such file");
}

TEST_P(NpzTest, MutatedFilesAreReadOrRefused) {
  const std::string whole = testing::zip_archive(keras_members(), GetParam());
  EXPECT_GT(testing::read_damaged(
                path(), whole, 1000, [&] { testing::read_all(open()); }, path().string()),
            300);
}

constexpr std::size_t kPiece = std::size_t{1} << 20;  // decompressed at once

/// The only member of the archive `path`, to its last byte.
std::vector<std::uint8_t> member_bytes(const std::filesystem::path& path, std::size_t size) {
  const std::unique_ptr<FileBytes> file = ZipFile(path).open("zeros");
  file->fetch(static_cast<std::int64_t>(size));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file->size()));
  file->read(0, bytes);
  return bytes;
}

// Zeros are deflated into matches of up to 258 bytes. Where one lies across the end of the first MiB, all input may be
// consumed before the rest of its bytes is asked for.
TEST_P(NpzTest, AMatchAcrossTheEndOfAPieceIsReadWhole) {
  for (std::size_t size = kPiece - 3; size <= kPiece + 299; size += 7) {
    const std::vector<std::uint8_t> zeros(size);
    put({{"zeros", testing::raw(zeros)}});
    EXPECT_EQ(member_bytes(path(), size), zeros) << size;
  }
}

TEST(NpzSizes, OfADeflatedMemberThatAreNotTheStreamsAreTold) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "set.npz";
  const std::size_t size = kPiece + 100;
  const std::string whole = testing::zip_archive({{"zeros", std::string(size, '\0')}}, true);
  const auto error = [&](std::size_t field, int change) {  // of a field of the directory's entry
    std::string other = whole;
    const std::size_t at = other.rfind("PK\1\2") + field;
    std::uint32_t value = 0;
    std::memcpy(&value, &other[at], sizeof value);
    value += static_cast<std::uint32_t>(change);
    std::memcpy(&other[at], &value, sizeof value);
    write_file(path, other);
    return message_of<DataError>([&] { (void)member_bytes(path, size + 1); });
  };
  constexpr std::size_t kStored = 20, kSize = 24;
  EXPECT_CONTAINS(error(kStored, -20), "set.npz(zeros): cannot be decompressed: it is cut short, after 1,0");
  EXPECT_CONTAINS(error(kStored, -900), "it is cut short, after ");
  EXPECT_CONTAINS(error(kSize, 1), "it ends early, after 1,048,676 decompressed bytes");
  EXPECT_CONTAINS(error(kSize, -1), "its checksum is another");
}

TEST_P(NpzTest, ANetworkLearnsFromThem) {
  const std::string cache = GetParam() ? "ram" : "off";
  const auto losses =
      testing::train_two_epochs(testing::data_of("format: npz, path: $/set.npz, pipeline: [cache: " + cache +
                                                     ", shuffle, normalize: {scale: 0.004}, batch: {size: 8}]",
                                                 folder_.path()),
                                3);
  EXPECT_LT(losses.at(1), losses.at(0));
}

}  // namespace
}  // namespace bantam::npz_test
