// The weights' average against its formula in double: decay, warm-up, every n-th update, skipped ones; and the
// exchange.
#include "bantam/kernels/update/weight_average.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/arrays.h"

namespace bantam::testing::weight_average_test {
namespace {

using kernels::AverageRule;
using kernels::UpdateControl;

constexpr std::int64_t kElements = 128 * 700, kBuffers = 128 * 3;
constexpr double kUnit = 0x1p-24;

class WeightAverageTest : public DeviceTest {
 protected:
  struct Arrays {
    explicit Arrays(KernelDevice& device)
        : weights(device, random_values(kElements, 1), DType::float32),
          average(device, random_values(kElements, 2), DType::float32),
          buffers(device, random_values(kBuffers, 3), DType::float32),
          buffer_average(device, random_values(kBuffers, 4), DType::float32),
          control(device, std::vector<UpdateControl>(1)) {}
    DeviceBuffer weights, average, buffers, buffer_average;
    DeviceArray<UpdateControl> control;
  };
  void move(Arrays& arrays, const AverageRule& rule, std::int64_t update, bool skipped = false) {
    arrays.control.upload({{.found_nonfinite = skipped ? 1 : 0, .updates = update}});
    BANTAM_KERNEL(exec(), move_average, rule,
                  {.elements = kElements,
                   .weights = arrays.weights.as<float>(),
                   .average = arrays.average.as<float>(),
                   .buffer_elements = kBuffers,
                   .buffers = arrays.buffers.as<float>(),
                   .buffer_average = arrays.buffer_average.as<float>()},
                  arrays.control.data());
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, WeightAverageTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// The decay at averaging k, from 1.
double decay_of(const AverageRule& rule, std::int64_t k) {
  if (k == 1) return 0;
  return rule.warms_up ? std::min(rule.decay, 1 - std::pow(static_cast<double>(k), -2.0 / 3)) : rule.decay;
}

TEST_P(WeightAverageTest, IsTheFormula) {
  for (const AverageRule& rule : {AverageRule{.decay = 0.9}, AverageRule{.decay = 0.75, .warms_up = true},
                                  AverageRule{.decay = 0.3, .every = 3}, AverageRule{.decay = 0.0}}) {
    Arrays arrays(device());
    std::vector<double> expected = to_double(arrays.average.download()),
                        expected_buffers = to_double(arrays.buffer_average.download());
    for (std::int64_t t = 1; t <= 12; ++t) {
      const std::vector<float> w = random_values(kElements, 100 + static_cast<std::uint64_t>(t)),
                               b = random_values(kBuffers, 200 + static_cast<std::uint64_t>(t));
      arrays.weights.upload(w);
      arrays.buffers.upload(b);
      move(arrays, rule, t);
      if (t % rule.every != 0) continue;
      const double d = decay_of(rule, t / rule.every);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = d * expected[i] + (1 - d) * w[i];
      for (std::size_t i = 0; i < expected_buffers.size(); ++i)
        expected_buffers[i] = d * expected_buffers[i] + (1 - d) * b[i];
    }
    // Of each averaging: a difference below 2 and its product, and the sum, with a few units each.
    expect_close(arrays.average.download(), expected, 12 * 8 * kUnit);
    expect_close(arrays.buffer_average.download(), expected_buffers, 12 * 8 * kUnit);
  }
}

TEST_P(WeightAverageTest, TheFirstAveragingCopies) {
  Arrays arrays(device());
  move(arrays, {.decay = 0.999, .every = 2}, 1);
  EXPECT_EQ(arrays.average.download(), random_values(kElements, 2)) << "not yet";
  move(arrays, {.decay = 0.999, .every = 2}, 2);
  EXPECT_EQ(arrays.average.download(), arrays.weights.download());
  EXPECT_EQ(arrays.buffer_average.download(), arrays.buffers.download());
}

TEST_P(WeightAverageTest, SkippedUpdatesDoNotMoveIt) {
  Arrays arrays(device());
  move(arrays, {.decay = 0.5}, 7, true);
  EXPECT_EQ(arrays.average.download(), random_values(kElements, 2));
  EXPECT_EQ(arrays.buffer_average.download(), random_values(kBuffers, 4));
}

TEST_P(WeightAverageTest, SwappingTwiceIsExact) {
  Arrays arrays(device());
  std::vector<float> odd = random_values(kElements, 1);
  odd[3] = NAN, odd[4] = -0.0f, odd[5] = INFINITY;
  arrays.weights.upload(odd);
  for (const bool back : {false, true}) {
    BANTAM_KERNEL(exec(), swap_values, kElements, arrays.weights.as<float>(), arrays.average.as<float>());
    EXPECT_EQ(bits_of(arrays.weights.download()), bits_of(back ? odd : random_values(kElements, 2)));
    EXPECT_EQ(bits_of(arrays.average.download()), bits_of(back ? random_values(kElements, 2) : odd));
  }
}

}  // namespace
}  // namespace bantam::testing::weight_average_test
