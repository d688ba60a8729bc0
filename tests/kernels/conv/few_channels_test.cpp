// Our CUDA kernels for 3x3 convolutions of 8 to 32 channels against plain loops in double: odd sizes, any padding, both
// types, groups of output channels, added gradients, the same bits every time, refusals, values that are not finite.
#include <gtest/gtest.h>

#include "bantam/kernels/conv/conv2d_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/conv/conv2d_shapes.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/guarded_workspace.h"

#if defined(BANTAM_WITH_CUDA)
#include "bantam/kernels/common/cuda/code_architecture.h"
#include "bantam/kernels/conv/cuda/few_channels.h"

namespace bantam::testing::few_channels_test {
namespace {

namespace cuda = kernels::cuda;
constexpr DType kHalves[] = {DType::float16, DType::bfloat16};

class FewChannelsTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && cuda::code_architecture() < 800) GTEST_SKIP() << "code for a GPU without these instructions";
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, FewChannelsTest, ::testing::Values(Device::cuda(0)), device_test_name);

Conv2dShape image(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t in, std::int64_t out,
                  std::array<std::int64_t, 4> pad = {1, 1, 1, 1}) {
  Conv2dShape s = with_padding(base(batch, height, in, out, 3), pad[0], pad[1], pad[2], pad[3]);
  s.in_w = width;
  return s;
}

/// Every number of input and output channels over images of part of a tile, one tile and several; paddings that differ
/// by side, and are wider than the window; more tiles than thread blocks, so that each block has a few.
std::vector<Conv2dShape> few_channels_shapes() {
  std::vector<Conv2dShape> all;
  for (const std::int64_t in : {8, 16, 24, 32})
    for (const std::int64_t out : {8, 24, 64, 72}) {
      all.push_back(image(1, 31, 31, in, out));
      all.push_back(image(3, 7, 5, in, out));
      all.push_back(image(3, 18, 17, in, out, {0, 0, 0, 0}));
    }
  for (const std::int64_t in : {8, 16, 24, 32}) {
    all.push_back(image(110, 31, 31, in, 64));
    all.push_back(image(2, 20, 33, in, 136, {0, 2, 3, 1}));
    all.push_back(image(1, 1, 1, in, 40));
    all.push_back(image(2, 16, 16, in, 32, {4, 4, 4, 4}));
  }
  return all;
}

struct Arrays {
  Arrays(const Conv2dShape& s, DType dtype)
      : x(random_values(s.x_elements(), 1, dtype)),
        w(random_values(s.w_elements(), 2, dtype)),
        dy(random_values(s.y_elements(), 3, dtype)) {}
  std::vector<float> x, w, dy;
};

std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// A random walk of float32 roundings over the products of a sum, 4 for its spread.
double sum_tolerance(std::int64_t products) {
  return 4 * std::sqrt(static_cast<double>(products) + 1) * unit_roundoff(DType::float32);
}

std::vector<float> forward(KernelDevice& device, const Conv2dShape& s, DType dtype, const Arrays& a) {
  const DeviceBuffer x(device, a.x, dtype), w(device, a.w, dtype), y(device, s.y_elements(), dtype);
  EXPECT_TRUE(cuda::few_channels_conv2d_forward(device.exec(), s, dtype, x.data(), w.data(), y.data()));
  device.synchronize();
  return y.download();
}

std::vector<float> grad_weight(KernelDevice& device, const Conv2dShape& s, DType dtype, const Arrays& a,
                               const std::vector<float>& before = {}) {
  const DeviceBuffer x(device, a.x, dtype), dy(device, a.dy, dtype);
  DeviceBuffer dw(device, s.w_elements(), DType::float32);
  if (!before.empty()) dw.upload(before);
  GuardedWorkspace workspace(device, static_cast<std::size_t>(cuda::few_channels_grad_weight_bytes(s)));
  EXPECT_TRUE(cuda::few_channels_conv2d_grad_weight(device.exec(), s, dtype, x.data(), dy.data(), dw.as<float>(),
                                                    !before.empty(), static_cast<float*>(workspace.get().data)));
  device.synchronize();
  workspace.expect_guard_intact();
  return dw.download();
}

TEST_P(FewChannelsTest, ForwardMatchesTheReferenceAndHasTheSameBitsTwice) {
  for (const Conv2dShape& s : few_channels_shapes())
    for (const DType dtype : kHalves) {
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward));
      ASSERT_TRUE(cuda::has_few_channels_kernel(s, dtype));
      const Arrays a(s, dtype);
      std::vector<double> expected(static_cast<std::size_t>(s.y_elements()));
      kernels::reference::conv2d_forward(s, doubles(a.x).data(), doubles(a.w).data(), expected.data());
      const std::vector<float> y = forward(device(), s, dtype, a);
      EXPECT_LE(relative_error(y, expected), sum_tolerance(9 * s.in_channels) + unit_roundoff(dtype));
      EXPECT_EQ(bits_of(forward(device(), s, dtype, a)), bits_of(y));
    }
}

TEST_P(FewChannelsTest, GradWeightMatchesTheReferenceAddsAndHasTheSameBitsTwice) {
  for (const Conv2dShape& s : few_channels_shapes())
    for (const DType dtype : kHalves) {
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::grad_weight));
      const Arrays a(s, dtype);
      const std::vector<float> before = random_values(s.w_elements(), 4);
      std::vector<double> expected(static_cast<std::size_t>(s.w_elements())), added = doubles(before);
      kernels::reference::conv2d_grad_weight(s, doubles(a.x).data(), doubles(a.dy).data(), expected.data(), false);
      kernels::reference::conv2d_grad_weight(s, doubles(a.x).data(), doubles(a.dy).data(), added.data(), true);
      const double tolerance = sum_tolerance(s.batch * s.out_h() * s.out_w());
      const std::vector<float> dw = grad_weight(device(), s, dtype, a);
      EXPECT_LE(relative_error(dw, expected), tolerance) << "not rounded to a half type";
      EXPECT_EQ(bits_of(grad_weight(device(), s, dtype, a)), bits_of(dw));
      EXPECT_LE(relative_error(grad_weight(device(), s, dtype, a, before), added), tolerance);
    }
}

/// An infinite pixel makes the outputs that read it infinite, not NaN, and no others: also where the terms of a sum are
/// an odd number of chunks.
TEST_P(FewChannelsTest, ValuesThatAreNotFiniteStayWhereTheyAre) {
  const Conv2dShape s = image(1, 19, 21, 24, 8);
  Arrays a(s, DType::float16);
  for (float& w : a.w) w = 1.0f;
  a.x.assign(a.x.size(), 0.5f);
  const std::int64_t row = 4, column = 6;
  a.x[static_cast<std::size_t>((row * 21 + column) * 24 + 5)] = std::numeric_limits<float>::infinity();
  const std::vector<float> y = forward(device(), s, DType::float16, a);
  for (std::int64_t i = 0; i < s.y_elements(); ++i) {
    const std::int64_t r = i / 8 / 21, c = i / 8 % 21;
    const bool reads = std::abs(r - row) <= 1 && std::abs(c - column) <= 1;
    const float value = y[static_cast<std::size_t>(i)];
    EXPECT_EQ(std::isinf(value), reads) << r << " " << c;
    EXPECT_FALSE(std::isnan(value)) << r << " " << c;
  }
}

TEST_P(FewChannelsTest, AddressesThatAreNotAlignedAreRefusedAndNothingIsWritten) {
  const Conv2dShape s = image(1, 9, 9, 8, 8);
  const Arrays a(s, DType::float16);
  std::vector<float> longer = a.x;
  longer.push_back(0);
  const DeviceBuffer x(device(), longer, DType::float16), w(device(), a.w, DType::float16),
      dy(device(), a.dy, DType::float16), y(device(), s.y_elements(), DType::float16);
  const DeviceBuffer dw(device(), s.w_elements(), DType::float32);
  GuardedWorkspace workspace(device(), static_cast<std::size_t>(cuda::few_channels_grad_weight_bytes(s)));
  const auto y_before = y.download_bytes(), dw_before = dw.download_bytes();
  const void* const odd = x.as<Half>() + 1;
  EXPECT_FALSE(cuda::few_channels_conv2d_forward(exec(), s, DType::float16, odd, w.data(), y.data()));
  EXPECT_FALSE(cuda::few_channels_conv2d_grad_weight(exec(), s, DType::float16, odd, dy.data(), dw.as<float>(), false,
                                                     static_cast<float*>(workspace.get().data)));
  device().synchronize();
  EXPECT_EQ(y.download_bytes(), y_before);
  EXPECT_EQ(dw.download_bytes(), dw_before);
}

}  // namespace
}  // namespace bantam::testing::few_channels_test
#endif
