// 3x3 convolutions by the wgmma kernels against plain loops in double, forward and as gradient: every form of a tile,
// images that end within one, batches that do; the same bits every time.
#include <gtest/gtest.h>

#include "bantam/kernels/conv/conv2d_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/conv/conv2d_shapes.h"
#include "tests/kernels/device_buffer.h"

#if defined(BANTAM_WITH_CUDA)
#include "bantam/kernels/common/cuda/tensor_boxes.h"
#include "bantam/kernels/conv/cuda/warpgroup_conv3x3.h"

namespace bantam::testing::warpgroup_conv3x3_test {
namespace {

namespace cuda = kernels::cuda;

class WarpgroupConv3x3Test : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && !cuda::has_warpgroups(exec())) GTEST_SKIP() << "no wgmma";
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, WarpgroupConv3x3Test, ::testing::Values(Device::cuda(0)), device_test_name);

Conv2dShape same(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t in, std::int64_t out) {
  Conv2dShape s = with_padding(base(batch, height, in, out, 3), 1, 1, 1, 1);
  s.in_w = width;
  return s;
}

std::vector<float> run(KernelDevice& device, const Conv2dShape& s, DType dtype, Conv2dPass pass,
                       const std::vector<float>& x_values, const std::vector<float>& w_values) {
  const DeviceBuffer x(device, x_values, dtype), w(device, w_values, dtype),
      y(device, pass == Conv2dPass::forward ? s.y_elements() : s.x_elements(), dtype);
  EXPECT_TRUE(cuda::warpgroup_conv3x3(device.exec(), kernels::warpgroup_conv3x3_of(s, dtype, pass), dtype, x.data(),
                                      w.data(), y.data(), {}));
  device.synchronize();
  return y.download();
}

TEST_P(WarpgroupConv3x3Test, MatchesTheReferenceForwardAndAsGradient) {
  for (const Conv2dShape& s :
       {same(2, 32, 32, 64, 64), same(3, 31, 30, 64, 64), same(1, 96, 40, 64, 64), same(2, 9, 7, 64, 64),
        same(2, 12, 20, 128, 64), same(2, 12, 20, 64, 128), same(3, 16, 16, 128, 128), same(1, 13, 21, 192, 256),
        same(3, 30, 6, 64, 128), same(3, 6, 30, 128, 128), same(3, 15, 7, 128, 128), same(3, 7, 15, 128, 128),
        same(5, 8, 8, 256, 256), same(17, 4, 4, 512, 128), same(3, 4, 3, 128, 128), same(1, 1, 1, 128, 384)})
    for (const DType dtype : {DType::float16, DType::bfloat16})
      for (const Conv2dPass pass : {Conv2dPass::forward, Conv2dPass::grad_input}) {
        if (kernels::warpgroup_conv3x3_of(s, dtype, pass).batch == 0) continue;
        SCOPED_TRACE(describe(s, dtype, pass));
        const bool forward = pass == Conv2dPass::forward;
        const std::int64_t inputs = forward ? s.x_elements() : s.y_elements();
        const auto x = random_values(inputs, 1, dtype), w = random_values(s.w_elements(), 2, dtype);
        const std::vector<double> x64(x.begin(), x.end()), w64(w.begin(), w.end());
        std::vector<double> y(static_cast<std::size_t>(forward ? s.y_elements() : s.x_elements()));
        (forward ? kernels::reference::conv2d_forward<double>
                 : kernels::reference::conv2d_grad_input<double>)(s, x64.data(), w64.data(), y.data());
        const std::vector<float> got = run(device(), s, dtype, pass, x, w);
        const double products = static_cast<double>(9 * (forward ? s.in_channels : s.out_channels));
        EXPECT_LE(relative_error(got, y),
                  4 * std::sqrt(products + 1) * unit_roundoff(DType::float32) + unit_roundoff(dtype));
        EXPECT_EQ(run(device(), s, dtype, pass, x, w), got) << "the same bits again";
      }
}

/// So many tiles that stages of shared memory are used many times: the same image again and again.
TEST_P(WarpgroupConv3x3Test, ManyTilesAreEachAsTheFirst) {
  for (const Conv2dShape& one : {same(1, 64, 64, 64, 64), same(1, 16, 16, 128, 128), same(1, 24, 24, 64, 384),
                                 same(1, 8, 8, 64, 512), same(1, 4, 4, 128, 512)})
    for (const Conv2dPass pass : {Conv2dPass::forward, Conv2dPass::grad_input}) {
      SCOPED_TRACE(describe(one, DType::float16, pass));
      Conv2dShape s = one;
      s.batch = one.in_h == 4 ? 2000 : 300;
      const bool forward = pass == Conv2dPass::forward;
      const auto image = random_values(forward ? one.x_elements() : one.y_elements(), 1, DType::float16),
                 w = random_values(s.w_elements(), 2, DType::float16);
      std::vector<float> x;
      for (std::int64_t i = 0; i < s.batch; ++i) x.insert(x.end(), image.begin(), image.end());
      const std::vector<float> first = run(device(), one, DType::float16, pass, image, w),
                               all = run(device(), s, DType::float16, pass, x, w);
      const auto each = static_cast<std::ptrdiff_t>(first.size());
      for (auto y = all.begin(); y != all.end(); y += each)
        ASSERT_TRUE(std::equal(first.begin(), first.end(), y)) << (y - all.begin()) / each;
    }
}

}  // namespace
}  // namespace bantam::testing::warpgroup_conv3x3_test
#endif
