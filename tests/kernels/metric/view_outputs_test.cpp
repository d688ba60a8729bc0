// Means over views, and the least certain rows: by hand, and as the reference has them.
#include "bantam/kernels/metric/view_outputs.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "bantam/kernels/input/image_views_reference.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::view_outputs_test {
namespace {

using kernels::LeastCertainShape;
using kernels::ViewOutputShape;

class ViewOutputsTest : public DeviceTest {
 protected:
  /// `to` after the call.
  std::vector<float> add(const ViewOutputShape& s, const std::vector<float>& y, DType dtype, std::vector<float> to,
                         const std::vector<std::int32_t>& places = {}) {
    const DeviceBuffer outputs(device(), y, dtype);
    const DeviceArray<float> sums(device(), to);
    const DeviceArray<std::int32_t> table(device(), places.empty() ? std::vector<std::int32_t>(1) : places);
    BANTAM_KERNEL(device().exec(), view_outputs, s, dtype, outputs.data(), places.empty() ? nullptr : table.data(),
                  sums.data());
    return sums.download();
  }
  std::vector<std::int32_t> choose(std::int64_t classes, std::int64_t count, const std::vector<float>& outputs) {
    const LeastCertainShape s{static_cast<std::int64_t>(outputs.size()) / classes, classes, count};
    const DeviceArray<float> rows(device(), outputs);
    const DeviceArray<std::int32_t> chosen(device(), std::vector<std::int32_t>(static_cast<std::size_t>(count), -1));
    const DeviceArray<std::uint32_t> keys(device(), std::vector<std::uint32_t>(static_cast<std::size_t>(s.rows)));
    BANTAM_KERNEL(device().exec(), least_certain, s, rows.data(), chosen.data(),
                  {keys.data(), kernels::least_certain_workspace(s)});
    return chosen.download();
  }
};

TEST_P(ViewOutputsTest, SumsByHand) {
  const std::vector<float> y = {1, 2, 3, 4}, before = {10, 20, 30, 40, 50, 60};
  for (const DType dtype : kernel_dtypes()) {
    EXPECT_EQ(add({2, 2}, y, dtype, before), (std::vector<float>{1, 2, 3, 4, 50, 60}));
    EXPECT_EQ(add({2, 2, true}, y, dtype, before), (std::vector<float>{11, 22, 33, 44, 50, 60}));
    EXPECT_EQ(add({2, 2, true, 4}, y, dtype, before, {2, 0}),
              (std::vector<float>{13.0f / 4, 24.0f / 4, 30, 40, 51.0f / 4, 62.0f / 4}));
  }
}

TEST_P(ViewOutputsTest, SumsAreTheReferenceBitForBit) {
  for (const auto& [rows, columns] : {std::pair<int, int>{1, 1}, {700, 10}, {33, 1000}}) {
    std::vector<std::int32_t> places;
    for (int n = 0; n < rows; ++n) places.push_back((n * 7 + 3) % (rows + (rows % 7 == 0 ? 1 : 0)));
    for (const DType dtype : kernel_dtypes()) {
      const std::vector<float> y = random_values(rows * columns, 3, dtype, -4.0f, 4.0f);
      const std::vector<float> before = random_values((rows + 1) * columns, 5, DType::float32, -9.0f, 9.0f);
      const ViewOutputShape s{rows, columns, true, 6};
      std::vector<float> expected = before;
      kernels::reference::view_outputs(s, y.data(), places.data(), expected.data());
      EXPECT_EQ(bits_of(add(s, y, dtype, before, places)), bits_of(expected)) << rows;
    }
  }
}

// Logits (0, a): the larger |a|, the larger the top probability. Rows 1 and 4 are equal, and so are 0 and 5.
TEST_P(ViewOutputsTest, TheLeastCertainByHand) {
  const std::vector<float> outputs = {0, 3, 0, 1, 0, 9, 0, -0.5f, 0, -1, 0, 3};
  EXPECT_EQ(choose(2, 1, outputs), (std::vector<std::int32_t>{3}));
  EXPECT_EQ(choose(2, 2, outputs), (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(choose(2, 3, outputs), (std::vector<std::int32_t>{1, 3, 4}));
  EXPECT_EQ(choose(2, 4, outputs), (std::vector<std::int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(choose(2, 6, outputs), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST_P(ViewOutputsTest, WhatIsNoNumberIsTheLeastCertain) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  const std::vector<float> outputs = {0, 0, nan, 5, 0, 0, infinite, 1, -infinite, 2, 3, nan};
  EXPECT_EQ(choose(2, 3, outputs), (std::vector<std::int32_t>{1, 3, 5}));
  EXPECT_EQ(choose(2, 4, outputs), (std::vector<std::int32_t>{0, 1, 3, 5}));
  EXPECT_EQ(choose(2, 5, outputs), (std::vector<std::int32_t>{0, 1, 2, 3, 5}));
}

/// Rows whose certainties lie apart by more than float32's rounding, or are those of equal rows, in a mixed order: the
/// first class is the largest by a multiple of 1/40.
std::vector<float> apart(std::int64_t rows, std::int64_t classes, std::int64_t levels) {
  std::vector<float> outputs(static_cast<std::size_t>(rows * classes), 0.25f);
  for (std::int64_t n = 0; n < rows; ++n) {
    const std::int64_t level = (n * 7919 + 13) % levels;
    outputs[static_cast<std::size_t>(n * classes)] += static_cast<float>(level) / 40.0f;
  }
  return outputs;
}

// More rows than the block has threads, a number that its threads do not divide, all digits of a key, and ties at the
// cut.
TEST_P(ViewOutputsTest, TheLeastCertainAreTheReferences) {
  for (const auto& [rows, classes] : {std::pair<int, int>{1, 3}, {10, 2}, {1024, 10}, {2501, 10}, {5000, 37}}) {
    for (const std::int64_t levels : {1, 7, 400}) {
      const std::vector<float> outputs = apart(rows, classes, levels);
      for (const std::int64_t count : {1, rows / 4, rows / 2 + 1, rows}) {
        if (count < 1 || count > rows) continue;
        EXPECT_EQ(choose(classes, count, outputs),
                  kernels::reference::least_certain({rows, classes, count}, outputs.data()))
            << rows << " rows, " << levels << " levels, " << count;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ViewOutputsTest, ::testing::ValuesIn(test_devices()), device_test_name);

}  // namespace
}  // namespace bantam::testing::view_outputs_test
