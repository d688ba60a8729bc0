// Dropout: the mask by hand and against the formula, the same bits on every device and for every split of the batch.
#include "bantam/kernels/elementwise/dropout.h"

#include <gtest/gtest.h>

#include "bantam/kernels/elementwise/dropout_reference.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::dropout_test {
namespace {

using kernels::DropoutShape;

struct Result {
  std::vector<float> y;
  std::vector<std::uint32_t> mask;
};

Result run_forward(KernelDevice& device, const DropoutShape& shape, std::int64_t update, const std::vector<float>& x,
                   DType dtype) {
  const DeviceBuffer in(device, x, dtype), out(device, static_cast<std::int64_t>(x.size()), dtype);
  const DeviceArray<std::int64_t> t(device, {update});
  const DeviceArray<std::uint32_t> mask(device, std::vector<std::uint32_t>(dropout_mask_bytes(shape) / 4, 0xdeadbeef));
  BANTAM_KERNEL(device.exec(), dropout_forward, shape, dtype, t.data(), in.data(), out.data(), mask.data());
  return {out.download(), mask.download()};
}

class DropoutTest : public DeviceTest {};

// Random123's known answer for key 0, counter 0: words 6627e8d5 e169c58d bc57ac4c 9b00dbd8, as uniforms 0.399 0.881
// 0.736 0.605.
TEST_P(DropoutTest, MaskByHand) {
  DropoutShape shape{.samples = 1, .sample_elements = 4, .rate = 0.5f, .key = {0, 0}, .first_sample = 0};
  Result result = run_forward(device(), shape, 0, {1, 2, 3, 4}, DType::float32);
  EXPECT_EQ(result.mask, std::vector<std::uint32_t>{0b1110});
  EXPECT_EQ(result.y, (std::vector<float>{0, 4, 6, 8}));
  shape.rate = 0.75f;
  result = run_forward(device(), shape, 0, {1, 2, 3, 4}, DType::float32);
  EXPECT_EQ(result.mask, std::vector<std::uint32_t>{0b0010});
  EXPECT_EQ(result.y, (std::vector<float>{0, 8, 0, 0}));
}

// The same known answer: the channels are dropped as the four elements were, and the sample as the first of them.
TEST_P(DropoutTest, ChannelsAndSamplesByHand) {
  DropoutShape shape{.samples = 1, .sample_elements = 8, .rate = 0.5f, .key = {0, 0}, .first_sample = 0, .draws = 4};
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  Result result = run_forward(device(), shape, 0, x, DType::float32);
  EXPECT_EQ(result.mask, std::vector<std::uint32_t>{0b1110});
  EXPECT_EQ(result.y, (std::vector<float>{0, 4, 6, 8, 0, 12, 14, 16}));
  shape.draws = 1;
  EXPECT_EQ(run_forward(device(), shape, 0, x, DType::float32).y, std::vector<float>(8, 0.0f));
  shape.rate = 0.25f;
  result = run_forward(device(), shape, 0, {3, 6, 9, 12, 15, 18, 21, 24}, DType::float32);
  EXPECT_EQ(result.mask, std::vector<std::uint32_t>{1});
  EXPECT_EQ(result.y, (std::vector<float>{4, 8, 12, 16, 20, 24, 28, 32}));
}

TEST(DropoutShape, MaskBytesRoundEachRowUp) {
  EXPECT_EQ(kernels::dropout_mask_bytes({.samples = 3, .sample_elements = 33}), 24u);
  EXPECT_EQ(kernels::dropout_mask_bytes({.samples = 2, .sample_elements = 32}), 8u);
  EXPECT_EQ(kernels::dropout_mask_bytes({.samples = 3, .sample_elements = 330, .draws = 33}), 24u);
  EXPECT_EQ(kernels::dropout_mask_bytes({.samples = 3, .sample_elements = 330, .draws = 1}), 12u);
}

/// Shapes with rows of every kind of end; the last has more elements than one block of threads handles.
std::vector<DropoutShape> shapes() {
  const PhiloxKey key = philox_key(42, RandomPurpose::dropout, 3);
  return {{1, 1, 0.5f, key, 0},
          {5, 3, 0.25f, key, 7},
          {3, 127, 0.5f, key, 100},
          {4, 128, 0.1f, key, 0},
          {7, 1001, 0.75f, key, 2},
          {2, 40000, 0.5f, key, 5},
          // A number a channel: 3 and 5 (no packs), 20 (four at a time), 64, 1024 and 1000 channels.
          {5, 27, 0.5f, key, 7, 3},
          {2, 5000, 0.5f, key, 1, 5},
          {3, 500, 0.25f, key, 2, 20},
          {3, 6400, 0.5f, key, 9, 64},
          {2, 3072, 0.1f, key, 0, 1024},
          {2, 3000, 0.5f, key, 0, 1000},
          // A number a sample.
          {9, 1, 0.5f, key, 4, 1},
          {40, 7, 0.5f, key, 4, 1},
          {65, 1024, 0.25f, key, 3, 1},
          {3, 100003, 0.5f, key, 2, 1}};
}

// Kept values are one float32 product of x and 1/(1 - rate), rounded once more to a half type: the same bits
// everywhere.
TEST_P(DropoutTest, ForwardAndGradientAreTheFormulaBitForBit) {
  const std::int64_t update = (std::int64_t{5} << 32) + 17;
  for (const DropoutShape& shape : shapes()) {
    const std::int64_t count = shape.samples * shape.sample_elements;
    const std::int64_t row_words = (shape.row_draws() + 31) / 32;
    for (const DType dtype : kernel_dtypes()) {
      const std::vector<float> x = random_values(count, 3, dtype, 0.5f, 2.0f);
      const Result result = run_forward(device(), shape, update, x, dtype);
      std::vector<std::uint32_t> mask(result.mask.size(), 0);
      std::vector<float> y(x.size(), 0.0f);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t s = i / shape.sample_elements, e = i % shape.sample_elements;
        if (!kernels::reference::dropout_keeps(shape, s, e, update)) continue;
        const std::int64_t d = e % shape.row_draws();
        mask[static_cast<std::size_t>(s * row_words + d / 32)] |= 1u << (d % 32);
        const auto at = static_cast<std::size_t>(i);
        y[at] = rounded(x[at] * (1.0f / (1.0f - shape.rate)), dtype);
      }
      ASSERT_EQ(result.mask, mask) << shape.sample_elements;
      ASSERT_EQ(result.y, y) << shape.sample_elements;
      const DeviceArray<std::uint32_t> device_mask(device(), mask);
      const DeviceBuffer dy(device(), x, dtype), dx(device(), count, dtype);
      BANTAM_KERNEL(exec(), dropout_grad, shape, dtype, device_mask.data(), dy.data(), dx.data());
      ASSERT_EQ(dx.download(), y) << shape.sample_elements;
    }
  }
}

TEST_P(DropoutTest, ForwardIsTheReferenceInDouble) {
  const DropoutShape shape = shapes()[4];
  const std::vector<float> x = random_values(shape.samples * shape.sample_elements, 3, DType::float32, 0.5f, 2.0f);
  std::vector<double> y(x.size());
  kernels::reference::dropout(shape, 9, to_double(x).data(), y.data());
  // Two roundings: of 1/(1 - rate) and of the product; 1 - rate is exact here.
  EXPECT_LE(relative_error(run_forward(device(), shape, 9, x, DType::float32).y, y), 2 * unit_roundoff(DType::float32));
}

TEST_P(DropoutTest, MicroBatchesDropTheSameElements) {
  for (const std::int64_t draws : {0, 91, 1}) {
    DropoutShape whole = shapes()[4];
    whole.draws = draws;
    const std::vector<float> x = random_values(whole.samples * whole.sample_elements, 4, DType::float32, 0.5f, 2.0f);
    const Result expected = run_forward(device(), whole, 11, x, DType::float32);
    Result joined;
    for (std::int64_t first = 0; first < whole.samples; first += 3) {
      DropoutShape part = whole;
      part.samples = std::min<std::int64_t>(3, whole.samples - first);
      part.first_sample = whole.first_sample + first;
      const auto begin = x.begin() + first * whole.sample_elements;
      const Result result =
          run_forward(device(), part, 11, {begin, begin + part.samples * whole.sample_elements}, DType::float32);
      joined.y.insert(joined.y.end(), result.y.begin(), result.y.end());
      joined.mask.insert(joined.mask.end(), result.mask.begin(), result.mask.end());
    }
    EXPECT_EQ(joined.y, expected.y);
    EXPECT_EQ(joined.mask, expected.mask);
  }
}

TEST_P(DropoutTest, UpdatesAndSamplesDrawDifferentMasks) {
  const DropoutShape shape{2, 320, 0.5f, philox_key(1, RandomPurpose::dropout), 0};
  const std::vector<float> x(640, 1.0f);
  const Result a = run_forward(device(), shape, 1, x, DType::float32),
               b = run_forward(device(), shape, 2, x, DType::float32);
  const Result high = run_forward(device(), shape, 1 + (std::int64_t{1} << 32), x, DType::float32);
  EXPECT_NE(a.mask, b.mask);
  EXPECT_NE(a.mask, high.mask);
  EXPECT_NE(std::vector<std::uint32_t>(a.mask.begin(), a.mask.begin() + 10),
            std::vector<std::uint32_t>(a.mask.begin() + 10, a.mask.end()));
}

// The kept share of n = 100,000 is binomial: deviation √(0.3·0.7/n) = 0.00145; 5 deviations.
TEST_P(DropoutTest, KeepsAboutOneMinusRate) {
  const DropoutShape shape{100, 1000, 0.3f, philox_key(2, RandomPurpose::dropout), 0};
  const Result result = run_forward(device(), shape, 0, std::vector<float>(100000, 1.0f), DType::float32);
  const auto kept = std::count_if(result.y.begin(), result.y.end(), [](float v) { return v != 0; });
  EXPECT_NEAR(static_cast<double>(kept) / 100000, 0.7, 0.0073);
}

TEST_P(DropoutTest, RateZeroKeepsAll) {
  const DropoutShape shape{2, 45, 0.0f, philox_key(2, RandomPurpose::dropout), 0};
  const std::vector<float> x = random_values(90, 5);
  const Result result = run_forward(device(), shape, 0, x, DType::float32);
  EXPECT_EQ(result.y, x);
  EXPECT_EQ(result.mask, (std::vector<std::uint32_t>{~0u, (1u << 13) - 1, ~0u, (1u << 13) - 1}));
}

TEST_P(DropoutTest, OutputsMayAliasInputs) {
  for (const DropoutShape& shape : shapes())
    for (const DType dtype : kernel_dtypes()) {
      const std::vector<float> x = random_values(shape.samples * shape.sample_elements, 6, dtype, 0.5f, 2.0f);
      const Result expected = run_forward(device(), shape, 3, x, dtype);
      const DeviceBuffer in(device(), x, dtype), dy(device(), x, dtype);
      const DeviceArray<std::int64_t> t(device(), {3});
      const DeviceArray<std::uint32_t> mask(device(), expected.mask);
      BANTAM_KERNEL(exec(), dropout_forward, shape, dtype, t.data(), in.data(), in.data(), mask.data());
      BANTAM_KERNEL(exec(), dropout_grad, shape, dtype, mask.data(), dy.data(), dy.data());
      EXPECT_EQ(in.download(), expected.y);
      EXPECT_EQ(dy.download(), expected.y);
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, DropoutTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST(DropoutCpu, BitsDoNotDependOnThreads) {
  for (const std::int64_t draws : {0, 13, 1}) {
    const DropoutShape shape{3, 40001, 0.5f, philox_key(4, RandomPurpose::dropout), 0, draws};
    const std::vector<float> x = random_values(3 * 40001, 7);
    std::vector<Result> results;
    for (const int threads : {1, 2, 3}) {
      KernelDevice device(Device::cpu(), threads);
      results.push_back(run_forward(device, shape, 1, x, DType::float32));
    }
    for (const Result& result : results) {
      EXPECT_EQ(result.y, results[0].y);
      EXPECT_EQ(result.mask, results[0].mask);
    }
  }
}

}  // namespace
}  // namespace bantam::testing::dropout_test
