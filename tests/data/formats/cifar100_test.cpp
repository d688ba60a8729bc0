// CIFAR-100 from small records in the official layouts: fine and coarse labels, names of classes, errors, training.
#include "tests/data/formats/pickle_files.h"
#include "tests/data/formats/short_run.h"

namespace bantam::cifar100_test {
namespace {

using testing::data_of;
using testing::message_of;
using testing::open_format;
using testing::TemporaryFolder;
using testing::write_file;
namespace fs = std::filesystem;

constexpr int kTrain = 50000, kTest = 10000;
constexpr std::size_t kRecordBytes = 2 + 3072;

/// Records of which only the labels and one pixel are set.
std::string binary(int count) {
  std::string bytes(static_cast<std::size_t>(count) * kRecordBytes, '\0');
  for (int i = 0; i < count; ++i) {
    char* record = bytes.data() + static_cast<std::size_t>(i) * kRecordBytes;
    record[0] = static_cast<char>(i % 20);
    record[1] = static_cast<char>(99 - i % 100);
    record[2 + 1024] = static_cast<char>(i % 250);  // green of the first pixel
  }
  return bytes;
}

class Cifar100Test : public ::testing::Test {
 protected:
  SampleSplits open(const std::string& more = "") const {
    return open_format("cifar100", "path: $" + more, folder_.path());
  }
  /// The binary version; training records beyond the first 1,000 are zeros that lie on no disk.
  void put_binary() const {
    write_file(folder_.path() / "train.bin", binary(1000));
    fs::resize_file(folder_.path() / "train.bin", kTrain * kRecordBytes);
    write_file(folder_.path() / "test.bin", binary(kTest));
  }
  TemporaryFolder folder_;
};

void expect_records(const SampleSplits& splits, bool fine) {
  for (const int i : {0, 1, 57, 9999}) {
    EXPECT_EQ(testing::label_of(*splits.validation, i), fine ? 99 - i % 100 : i % 20);
    const std::string pixels = testing::fetched(*splits.validation, i)[0];
    EXPECT_EQ(static_cast<std::uint8_t>(pixels[1]), i % 250);
    EXPECT_EQ(pixels[0] + pixels[2] + pixels[3], 0);
  }
}

TEST_F(Cifar100Test, FineAndCoarseLabels) {
  put_binary();
  const SampleSplits fine = open();
  fine.train->check(true, 1);
  EXPECT_EQ(fine.train->facts().size, kTrain);
  EXPECT_EQ(testing::label_of(*fine.train, 999), 0);
  EXPECT_EQ(fine.train->facts().class_names.size(), 100u);
  EXPECT_EQ(fine.train->facts().class_names[99], "worm");
  EXPECT_EQ(fine.train->resident_bytes(), 0u);
  expect_records(fine, true);
  const SampleSplits coarse = open(", labels: coarse");
  EXPECT_EQ(coarse.validation->facts().class_names.size(), 20u);
  EXPECT_EQ(coarse.validation->facts().class_names[19], "vehicles_2");
  expect_records(coarse, false);
}

TEST_F(Cifar100Test, TheArchiveOfPickles) {
  const auto batch = [](int count) {
    std::vector<int> coarse, fine;
    std::string pixels, all = binary(count);
    for (int i = 0; i < count; ++i) {
      coarse.push_back(i % 20);
      fine.push_back(99 - i % 100);
      pixels += all.substr(static_cast<std::size_t>(i) * kRecordBytes + 2, 3072);
    }
    return testing::python2_batch({{"fine_labels", fine}, {"coarse_labels", coarse}}, static_cast<std::size_t>(count),
                                  pixels);
  };
  write_file(folder_.path() / "cifar-100-python.tar.gz",
             testing::gzipped(testing::tar_archive("cifar-100-python",
                                                   {{"meta", "x"}, {"test", batch(kTest)}, {"train", batch(100)}})));
  const SampleSplits splits = open();
  splits.validation->check(true, 1);
  expect_records(splits, true);
  EXPECT_EQ(splits.train->resident_bytes(), kTrain * kRecordBytes);
  EXPECT_CONTAINS(message_of<DataError>([&] { splits.train->check(false, 1); }),
                  "cifar-100-python.tar.gz(train): has 307,400 bytes, expected 153,700,000");
}

TEST_F(Cifar100Test, WhatIsMissingOrWrongIsNamed) {
  const std::string message = message_of<DataError>([&] { open().train->check(false, 1); });
  EXPECT_CONTAINS(message, (folder_.path() / "train.bin").string() + ": cannot be read: No such file");
  EXPECT_CONTAINS(message, "cifar-100-python.tar.gz");
  std::string bytes = binary(kTest);
  bytes[5 * kRecordBytes + 1] = 100;
  write_file(folder_.path() / "train.bin", "x");
  write_file(folder_.path() / "test.bin", bytes);
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)testing::label_of(*open().validation, 5); }),
                  "test.bin: record 5 at byte offset 15370 has the label 100, which is not one of 0 to 99");
  EXPECT_CONTAINS(message_of<DataError>([&] { open().train->check(false, 1); }),
                  "record 0 at byte offset 0 is cut short");
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)open(", labels: middle"); }), "coarse");
}

TEST_F(Cifar100Test, ANetworkLearnsFromThem) {
  put_binary();
  const auto losses = testing::train_two_epochs(
      data_of("format: cifar100, path: $, labels: coarse, limit: 200, validation: {split: 0.2}, pipeline: [cache: off, "
              "shuffle, normalize: {scale: 0.02}, batch: {size: 8}]",
              folder_.path()),
      20);
  EXPECT_LT(losses.at(1), losses.at(0));
}

}  // namespace
}  // namespace bantam::cifar100_test
