// Checksums and layout of records, beside published values.
#include "bantam/run/log/event_records.h"

#include <gtest/gtest.h>

#include "bantam/run/log/graph_def.h"
#include "bantam/run/log/hparams.h"
#include "bantam/run/log/matrix_picture.h"

namespace bantam::run::event_records_test {
namespace {

TEST(EventRecords, ChecksumsAreCastagnolis) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

TEST(EventRecords, ARecordHasItsLengthAndTwoChecksums) {
  const std::string record = event_record("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
  std::uint32_t masked = 0;
  for (int i = 3; i >= 0; --i)
    masked = masked << 8 | static_cast<std::uint8_t>(record[15 + static_cast<std::size_t>(i)]);
  const std::uint32_t rotated = masked - 0xa282ead8u;  // undone
  EXPECT_EQ(rotated >> 17 | rotated << 15, crc32c("abc"));
}

TEST(MatrixPicture, ColoursAreSharesOfARow) {
  const MetricTable matrix{.values = {4, 0, 1, 3}, .columns = 2};
  const Image image = matrix_picture(matrix);
  EXPECT_EQ(image.size.width, 64);
  const auto red = [&](std::int64_t row, std::int64_t column) {
    return image.pixels[static_cast<std::size_t>(3 * ((row * 32 + 16) * 64 + column * 32 + 16))];
  };
  EXPECT_EQ(red(0, 0), 8) << "all of the label's samples";
  EXPECT_EQ(red(0, 1), 255) << "none";
  EXPECT_GT(red(1, 0), red(1, 1));
  EXPECT_LT(red(1, 0), 255);
}

TEST(MatrixPicture, AsMarkdown) {
  const MetricTable matrix{.values = {4, 0, 1, 3}, .columns = 2};
  const std::vector<std::string> names = {"cat", "a|b"};
  EXPECT_EQ(matrix_markdown(matrix, names),
            "| label \\ prediction | cat | a\\|b |\n|---|---|---|\n| cat | 4 | 0 |\n| a\\|b | 1 | 3 |\n");
  EXPECT_EQ(matrix_markdown(matrix, names, 1), "");
}

TEST(Hparams, AreWhatDecidesAResult) {
  const ConfigValues values = {{"seed", "42"},
                               {"device", "cpu"},
                               {"data.path", "x"},
                               {"data.pipeline.3.batch.size", "64"},
                               {"data.pipeline.0", "random_flip"},
                               {"train.mode", "eager"},
                               {"train.optimizer.sgd.nesterov", "true"}};
  const ConfigValues expected = {{"seed", "42"},
                                 {"data.pipeline.batch.size", "64"},
                                 {"data.pipeline.random_flip", "true"},
                                 {"train.optimizer.sgd.nesterov", "true"}};
  EXPECT_EQ(hyperparameters(values), expected);
}

}  // namespace
}  // namespace bantam::run::event_records_test
