// Convolution with 2x2 max pooling against plain loops in double and against the two kernels one after the other, on
// every device: odd sizes, padding that differs by side, ties, values that are not finite, added gradients, refusals.
#include "bantam/kernels/conv/conv2d_pool.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "bantam/kernels/conv/conv2d_reference.h"
#include "bantam/kernels/conv/few_channels_parts.h"
#include "bantam/kernels/pool/pool2d_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/conv/conv2d_shapes.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/guarded_workspace.h"

namespace bantam::testing::conv2d_pool_test {
namespace {

class Conv2dPoolTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, Conv2dPoolTest, ::testing::ValuesIn(test_devices()), device_test_name);

constexpr DType kHalves[] = {DType::float16, DType::bfloat16};

Conv2dShape image(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t in, std::int64_t out,
                  std::array<std::int64_t, 4> pad = {1, 1, 1, 1}) {
  Conv2dShape s = with_padding(base(batch, height, in, out, 3), pad[0], pad[1], pad[2], pad[3]);
  s.in_w = width;
  return s;
}

/// Every number of input channels over images that fill their tiles, with a last odd row or column and without; more
/// tiles than thread blocks; several groups of output channels; paddings that differ by side.
std::vector<Conv2dShape> pooled_shapes() {
  std::vector<Conv2dShape> all;
  for (const std::int64_t in : {8, 16, 24, 32})
    for (const std::int64_t out : {8, 24, 64, 72}) {
      all.push_back(image(1, 31, 31, in, out));
      all.push_back(image(2, 16, 30, in, out, {0, 2, 1, 1}));
      all.push_back(image(3, 17, 16, in, out, {0, 1, 2, 0}));
    }
  for (const std::int64_t in : {8, 16, 24, 32}) {
    all.push_back(image(110, 31, 31, in, 64));
    all.push_back(image(2, 28, 63, in, 128, {3, 2, 0, 1}));
  }
  return all;
}

std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

double sum_tolerance(std::int64_t products) {
  return 4 * std::sqrt(static_cast<double>(products) + 1) * unit_roundoff(DType::float32);
}

struct Pooled {
  std::vector<float> y;
  std::vector<std::uint16_t> winner;
  std::vector<std::uint32_t> bits;
};

std::vector<std::uint16_t> places(const DeviceBuffer& winner) {
  std::vector<std::uint16_t> all;
  const std::vector<std::uint8_t> raw = winner.download_bytes();
  for (std::size_t i = 0; i + 1 < raw.size(); i += 2)
    all.push_back(static_cast<std::uint16_t>(raw[i] | raw[i + 1] << 8));
  return all;
}

/// Winners lie in a buffer of a 16-bit type.
Pooled forward(KernelDevice& device, const Conv2dShape& s, DType dtype, const std::vector<float>& x,
               const std::vector<float>& w) {
  const std::int64_t count = kernels::pool_of_conv2d(s).y_elements();
  const DeviceBuffer from(device, x, dtype), weights(device, w, dtype), y(device, count, dtype),
      winner(device, count, DType::float16);
  GuardedWorkspace workspace(
      device, kernels::conv2d_pool_workspace_bytes(s, dtype, Conv2dPass::forward, device.exec().device.kind));
  BANTAM_KERNEL(device.exec(), conv2d_pool_forward, s, dtype, from.data(), weights.data(), y.data(),
                winner.as<std::uint16_t>(), workspace.get());
  device.synchronize();
  workspace.expect_guard_intact();
  return {y.download(), places(winner), bits_of(y.download())};
}

/// The two kernels one after the other.
Pooled apart(KernelDevice& device, const Conv2dShape& s, DType dtype, const std::vector<float>& x,
             const std::vector<float>& w) {
  const kernels::Pool2dShape pool = kernels::pool_of_conv2d(s);
  const DeviceBuffer from(device, x, dtype), weights(device, w, dtype), dense(device, s.y_elements(), dtype),
      y(device, pool.y_elements(), dtype), winner(device, pool.y_elements(), DType::float16);
  GuardedWorkspace workspace(device,
                             kernels::conv2d_workspace_bytes(s, dtype, Conv2dPass::forward, device.exec().device.kind));
  BANTAM_KERNEL(device.exec(), conv2d_forward, s, dtype, from.data(), weights.data(), dense.data(), workspace.get());
  BANTAM_KERNEL(device.exec(), max_pool2d_forward, pool, dtype, dense.data(), y.data(), winner.as<std::uint16_t>());
  device.synchronize();
  return {y.download(), places(winner), bits_of(y.download())};
}

std::vector<float> grad_weight(KernelDevice& device, const Conv2dShape& s, DType dtype, const std::vector<float>& x,
                               const std::vector<float>& dy, const std::vector<std::uint16_t>& winner,
                               const std::vector<float>& before = {}) {
  std::vector<float> bytes;
  for (const std::uint16_t place : winner) {
    bytes.push_back(static_cast<float>(place % 256));
    bytes.push_back(static_cast<float>(place / 256));
  }
  const DeviceBuffer from(device, x, dtype), gradient(device, dy, dtype), won(device, bytes, DType::uint8);
  DeviceBuffer dw(device, s.w_elements(), DType::float32);
  if (!before.empty()) dw.upload(before);
  GuardedWorkspace workspace(
      device, kernels::conv2d_pool_workspace_bytes(s, dtype, Conv2dPass::grad_weight, device.exec().device.kind));
  BANTAM_KERNEL(device.exec(), conv2d_pool_grad_weight, s, dtype, from.data(), gradient.data(), won.as<std::uint16_t>(),
                {.dw = dw.as<float>(), .accumulate = !before.empty()}, workspace.get());
  device.synchronize();
  workspace.expect_guard_intact();
  return dw.download();
}

/// Two rows of two windows by hand: w passes the centre on, so that y is the maximum of x's pixels.
TEST_P(Conv2dPoolTest, HandComputedCase) {
  const Conv2dShape s = image(1, 16, 16, 8, 8);
  std::vector<float> x(static_cast<std::size_t>(s.x_elements()), 0.0f), w(static_cast<std::size_t>(s.w_elements()));
  for (std::int64_t c = 0; c < 8; ++c) w[static_cast<std::size_t>((c * 9 + 4) * 8 + c)] = 1.0f;
  const auto at = [&](std::int64_t row, std::int64_t column, std::int64_t c) -> float& {
    return x[static_cast<std::size_t>((row * 16 + column) * 8 + c)];
  };
  at(0, 1, 0) = 3.0f;                // window (0, 0), channel 0: place 1
  at(0, 1, 1) = at(1, 0, 1) = 2.0f;  // channel 1: of equal ones the first in row order, place 1
  at(1, 0, 2) = at(1, 1, 2) = 5.0f;  // channel 2: place 2
  at(15, 15, 7) = 7.0f;              // window (7, 7), channel 7: place 3
  at(2, 12, 3) = std::nanf("");      // window (1, 6), channel 3: place 0, before a larger number
  at(3, 13, 3) = 9.0f;
  at(2, 13, 4) = -std::numeric_limits<float>::infinity();  // window (1, 6), channel 4: place 0 has 0
  const Pooled out = forward(device(), s, DType::float16, x, w);
  const auto place = [](std::int64_t row, std::int64_t column, std::int64_t c) {
    return static_cast<std::size_t>((row * 8 + column) * 8 + c);
  };
  EXPECT_EQ(out.y[place(0, 0, 0)], 3.0f);
  EXPECT_EQ(out.winner[place(0, 0, 0)], 1);
  EXPECT_EQ(out.y[place(0, 0, 1)], 2.0f);
  EXPECT_EQ(out.winner[place(0, 0, 1)], 1);
  EXPECT_EQ(out.y[place(0, 0, 2)], 5.0f);
  EXPECT_EQ(out.winner[place(0, 0, 2)], 2);
  EXPECT_EQ(out.y[place(7, 7, 7)], 7.0f);
  EXPECT_EQ(out.winner[place(7, 7, 7)], 3);
  EXPECT_EQ(out.y[place(5, 5, 5)], 0.0f);
  EXPECT_EQ(out.winner[place(5, 5, 5)], 0);
  // A NaN reaches every pixel whose patch has it (0 times NaN is NaN), in all channels.
  EXPECT_TRUE(std::isnan(out.y[place(1, 6, 3)]));
  EXPECT_EQ(out.winner[place(1, 6, 3)], 0);
}

TEST_P(Conv2dPoolTest, ForwardHasTheBitsOfTheKernelsOneAfterTheOther) {
  for (const Conv2dShape& s : pooled_shapes())
    for (const DType dtype : kHalves) {
      if (device().exec().device.kind == DeviceKind::cpu && s.batch > 3) continue;  // takes long
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward));
      // Numbers of few digits: products and sums are exact, in whatever order, and there are many ties.
      std::vector<float> x = random_values(s.x_elements(), 1, dtype), w = random_values(s.w_elements(), 2, dtype);
      for (std::vector<float>* values : {&x, &w})
        for (float& v : *values) v = std::round(v * 2) / 2;
      // Where the convolution alone runs the same kernel: zeros with which a library's fills up times infinity are NaN.
      if (device().exec().device.kind == DeviceKind::cpu || kernels::cuda::prefers_few_channels_kernel(s, dtype)) {
        x[x.size() / 3] = std::nanf("");
        x[x.size() / 2] = std::numeric_limits<float>::infinity();
      }
      const Pooled together = forward(device(), s, dtype, x, w), one_by_one = apart(device(), s, dtype, x, w);
      ASSERT_EQ(together.y.size(), one_by_one.y.size());
      std::size_t differ = 0;
      for (std::size_t i = 0; i < together.y.size(); ++i)
        differ += together.winner[i] != one_by_one.winner[i] ||
                  (together.bits[i] != one_by_one.bits[i] && !std::isnan(one_by_one.y[i]));
      EXPECT_EQ(differ, 0u);
      EXPECT_EQ(forward(device(), s, dtype, x, w).bits, together.bits);
    }
}

TEST_P(Conv2dPoolTest, ForwardMatchesTheReference) {
  for (const Conv2dShape& s : {image(3, 31, 31, 24, 64), image(2, 16, 30, 8, 24, {0, 2, 1, 1})})
    for (const DType dtype : kHalves) {
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward));
      const std::vector<float> x = random_values(s.x_elements(), 1, dtype), w = random_values(s.w_elements(), 2, dtype);
      std::vector<double> dense(static_cast<std::size_t>(s.y_elements()));
      kernels::reference::conv2d_forward(s, doubles(x).data(), doubles(w).data(), dense.data());
      const auto expected = kernels::reference::max_pool2d_forward(kernels::pool_of_conv2d(s), dense);
      const Pooled out = forward(device(), s, dtype, x, w);
      EXPECT_LE(relative_error(out.y, expected.y), sum_tolerance(9 * s.in_channels) + unit_roundoff(dtype));
      std::size_t differ = 0;  // only where two of a window round alike
      for (std::size_t i = 0; i < out.winner.size(); ++i) differ += out.winner[i] != expected.winner[i];
      EXPECT_LE(differ, out.winner.size() / 50);
    }
}

TEST_P(Conv2dPoolTest, GradWeightMatchesTheReferenceAddsAndHasTheSameBitsTwice) {
  for (const Conv2dShape& s : pooled_shapes())
    for (const DType dtype : kHalves) {
      if (device().exec().device.kind == DeviceKind::cpu && s.batch > 3) continue;
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::grad_weight));
      const kernels::Pool2dShape pool = kernels::pool_of_conv2d(s);
      const std::vector<float> x = random_values(s.x_elements(), 1, dtype),
                               dy = random_values(pool.y_elements(), 3, dtype),
                               before = random_values(s.w_elements(), 4);
      std::vector<std::uint16_t> winner(dy.size());
      for (std::size_t i = 0; i < winner.size(); ++i) winner[i] = static_cast<std::uint16_t>(i * 2654435761u >> 13 & 3);
      const std::vector<double> dense = kernels::reference::max_pool2d_grad_input(pool, doubles(dy), winner);
      std::vector<double> expected(static_cast<std::size_t>(s.w_elements())), added = doubles(before);
      kernels::reference::conv2d_grad_weight(s, doubles(x).data(), dense.data(), expected.data(), false);
      kernels::reference::conv2d_grad_weight(s, doubles(x).data(), dense.data(), added.data(), true);
      const double tolerance = sum_tolerance(s.batch * s.out_h() * s.out_w());
      const std::vector<float> dw = grad_weight(device(), s, dtype, x, dy, winner);
      EXPECT_LE(relative_error(dw, expected), tolerance);
      EXPECT_EQ(bits_of(grad_weight(device(), s, dtype, x, dy, winner)), bits_of(dw));
      EXPECT_LE(relative_error(grad_weight(device(), s, dtype, x, dy, winner, before), added), tolerance);
    }
}

/// 2 filters, 1 tap, 2 channels by hand; and for other shapes: of the weight gradient of an array d, the sums over
/// pixels of the input gradient times d.
TEST_P(Conv2dPoolTest, InputSumsAreOfTheInputGradientTimesAnArray) {
  {
    const DeviceBuffer w(device(), {1, 2, 3, 4}, DType::float16), dw(device(), {10, 20, 30, 40}, DType::float32);
    DeviceBuffer sums(device(), {1, 2}, DType::float32);
    const Conv2dShape s = base(1, 4, 2, 2, 1);
    BANTAM_KERNEL(exec(), conv2d_input_sums, s, DType::float16, w.data(), dw.as<float>(), sums.as<float>(), true);
    EXPECT_EQ(sums.download(), (std::vector<float>{101, 202}));
    BANTAM_KERNEL(exec(), conv2d_input_sums, s, DType::float16, w.data(), dw.as<float>(), sums.as<float>(), false);
    EXPECT_EQ(sums.download(), (std::vector<float>{100, 200}));
  }
  for (const Conv2dShape& s : {image(2, 11, 9, 24, 64), image(3, 6, 7, 40, 8, {0, 1, 1, 0})})
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::grad_input));
      const std::vector<float> d = random_values(s.x_elements(), 1, dtype), w = random_values(s.w_elements(), 2, dtype),
                               dy = random_values(s.y_elements(), 3, dtype);
      std::vector<double> products(w.size()), dx(d.size()), expected(static_cast<std::size_t>(s.in_channels));
      kernels::reference::conv2d_grad_weight(s, doubles(d).data(), doubles(dy).data(), products.data(), false);
      kernels::reference::conv2d_grad_input(s, doubles(dy).data(), doubles(w).data(), dx.data());
      for (std::size_t i = 0; i < dx.size(); ++i) expected[i % expected.size()] += dx[i] * static_cast<double>(d[i]);
      const DeviceBuffer weights(device(), w, dtype), dw(device(), {products.begin(), products.end()}, DType::float32);
      const DeviceBuffer sums(device(), s.in_channels, DType::float32);
      BANTAM_KERNEL(exec(), conv2d_input_sums, s, dtype, weights.data(), dw.as<float>(), sums.as<float>(), false);
      EXPECT_LE(relative_error(sums.download(), expected), sum_tolerance(9 * s.out_channels) + 1e-6);
    }
}

TEST(Conv2dPool, SupportsTheShapesOfThisTest) {
  for (const Conv2dShape& s : pooled_shapes())
    for (const DType dtype : kHalves) EXPECT_TRUE(kernels::conv2d_pool_supports(s, dtype, DeviceKind::cuda));
}

TEST(Conv2dPool, IsSupportedForHalfTypesOnCudaWhateverTheBatch) {
  const auto supports = [](const Conv2dShape& s, DType dtype = DType::float16, DeviceKind device = DeviceKind::cuda) {
    return kernels::conv2d_pool_supports(s, dtype, device);
  };
  EXPECT_TRUE(supports(image(1, 31, 31, 24, 64)));
  EXPECT_TRUE(supports(image(1536, 31, 31, 24, 64), DType::bfloat16));
  EXPECT_FALSE(supports(image(1, 31, 31, 24, 64), DType::float32));
  EXPECT_FALSE(supports(image(1, 31, 31, 24, 64), DType::float16, DeviceKind::cpu));
  EXPECT_FALSE(supports(image(1, 31, 31, 64, 64))) << "more channels than the kernels read";
  EXPECT_FALSE(supports(image(1, 15, 9, 24, 64))) << "tiles would be empty to a third and more";
  EXPECT_FALSE(supports(image(1, 31, 31, 24, 256)));
}

#if defined(BANTAM_WITH_CUDA)
TEST_P(Conv2dPoolTest, AddressesThatAreNotAlignedRunPlainLoops) {
  if (device().exec().device.kind == DeviceKind::cpu) GTEST_SKIP() << "of CUDA kernels";
  const Conv2dShape s = image(2, 16, 16, 8, 8);
  const std::int64_t count = kernels::pool_of_conv2d(s).y_elements();
  std::vector<float> values = random_values(s.x_elements() + 1, 1, DType::float16);
  for (float& v : values) v = std::round(v * 2) / 2;
  const std::vector<float> x(values.begin() + 1, values.end()), w(static_cast<std::size_t>(s.w_elements()), 0.5f);
  const DeviceBuffer from(device(), values, DType::float16), weights(device(), w, DType::float16),
      y(device(), count, DType::float16), winner(device(), count, DType::float16),
      dw(device(), s.w_elements(), DType::float32);
  GuardedWorkspace workspace(
      device(), kernels::conv2d_pool_workspace_bytes(s, DType::float16, Conv2dPass::grad_weight, DeviceKind::cuda));
  const void* const odd = from.as<Half>() + 1;
  BANTAM_KERNEL(exec(), conv2d_pool_forward, s, DType::float16, odd, weights.data(), y.data(),
                winner.as<std::uint16_t>(), {});
  BANTAM_KERNEL(exec(), conv2d_pool_grad_weight, s, DType::float16, odd, y.data(), winner.as<std::uint16_t>(),
                {.dw = dw.as<float>()}, workspace.get());
  device().synchronize();
  const Pooled expected = forward(device(), s, DType::float16, x, w);
  EXPECT_EQ(bits_of(y.download()), expected.bits);
  EXPECT_EQ(places(winner), expected.winner);
  const std::vector<float> expected_dw = grad_weight(device(), s, DType::float16, x, expected.y, expected.winner);
  EXPECT_LE(relative_error(dw.download(), doubles(expected_dw)), 2 * sum_tolerance(s.batch * s.out_h() * s.out_w()));
}

TEST_P(Conv2dPoolTest, OtherShapesAreRefusedOnCuda) {
  if (device().exec().device.kind == DeviceKind::cpu) GTEST_SKIP() << "the CPU runs all";
  const Conv2dShape s = image(1, 16, 16, 64, 8);
  const DeviceBuffer some(device(), std::int64_t{16}, DType::float16);
  EXPECT_THROW(
      BANTAM_KERNEL(exec(), conv2d_pool_forward, s, DType::float16, some.data(), some.data(), some.data(), nullptr, {}),
      ShapeError);
}
#endif

}  // namespace
}  // namespace bantam::testing::conv2d_pool_test
