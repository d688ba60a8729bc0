// Depthwise convolution: hand values, every device against the reference in double, accumulation, guards, determinism.
#include "bantam/kernels/depthwise/depthwise_conv2d.h"

#include "bantam/kernels/common/fast_divide.h"
#include "bantam/kernels/depthwise/depthwise_conv2d_reference.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::depthwise_conv2d_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support
using S = DepthwiseConv2dShape;

class DepthwiseConv2dTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, DepthwiseConv2dTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// A square kernel with padding (top, bottom, left, right).
S square(std::int64_t batch, std::int64_t size, std::int64_t channels, std::int64_t kernel, std::int64_t stride,
         std::array<std::int64_t, 4> pad, std::int64_t multiplier = 1, std::int64_t dilation = 1) {
  return {.batch = batch,
          .in_h = size,
          .in_w = size + 1,
          .channels = channels,
          .multiplier = multiplier,
          .kernel_h = kernel,
          .kernel_w = kernel,
          .stride_h = stride,
          .stride_w = stride,
          .pad_top = pad[0],
          .pad_bottom = pad[1],
          .pad_left = pad[2],
          .pad_right = pad[3],
          .dilation_h = dilation,
          .dilation_w = dilation};
}

std::vector<S> shapes() {
  std::vector<S> all;
  for (const std::int64_t channels : {1, 3, 8, 20, 32, 64, 65}) {
    all.push_back(square(2, 9, channels, 3, 1, {1, 1, 1, 1}));   // same padding
    all.push_back(square(2, 10, channels, 3, 2, {0, 1, 0, 1}));  // Keras' same padding at stride 2
    all.push_back(square(1, 11, channels, 3, 2, {1, 1, 1, 1}));
  }
  for (const std::int64_t channels : {3, 20, 40}) {
    all.push_back(square(2, 8, channels, 3, 1, {0, 0, 0, 0}));
    all.push_back(square(1, 9, channels, 5, 1, {2, 2, 2, 2}));
    all.push_back(square(1, 9, channels, 5, 2, {1, 2, 1, 2}));
    all.push_back(square(1, 12, channels, 7, 3, {3, 0, 2, 4}));
    all.push_back(square(2, 7, channels, 2, 2, {0, 1, 1, 0}));
    all.push_back(square(2, 7, channels, 1, 1, {0, 0, 0, 0}));
    all.push_back(square(2, 11, channels, 3, 1, {2, 2, 2, 2}, 1, 2));
    all.push_back(square(1, 13, channels, 3, 2, {2, 1, 3, 0}, 1, 2));
    all.push_back(square(1, 13, channels, 3, 3, {2, 1, 3, 0}, 1, 2));
    all.push_back(square(2, 8, channels, 3, 1, {1, 1, 1, 1}, 2));
    all.push_back(square(1, 8, channels, 3, 2, {0, 1, 0, 1}, 3));
    all.push_back(square(1, 9, channels, 9, 1, {4, 4, 4, 4}));  // more taps than one pass of the gradient computes
    all.push_back(square(1, 2, channels, 3, 1, {1, 1, 1, 1}));  // a kernel larger than the image
  }
  for (const std::int64_t channels : {1, 2, 24, 70}) {  // wide kernels: same, valid, uneven and full padding
    for (const std::array<std::int64_t, 4> pad :
         {std::array<std::int64_t, 4>{2, 2, 2, 2}, {0, 0, 0, 0}, {1, 3, 4, 0}}) {
      all.push_back(square(2, 15, channels, 5, 1, pad));
      all.push_back(square(2, 16, channels, 5, 2, pad));
      all.push_back(square(1, 17, channels, 5, 2, pad));
    }
    for (const std::array<std::int64_t, 4> pad : {std::array<std::int64_t, 4>{3, 3, 3, 3}, {0, 0, 0, 0}, {6, 1, 2, 6}})
      all.push_back(square(2, 16, channels, 7, 1, pad));
    all.push_back(square(1, 3, channels, 7, 1, {3, 3, 3, 3}));
  }
  all.push_back({.batch = 2,
                 .in_h = 6,
                 .in_w = 15,
                 .channels = 16,
                 .kernel_h = 3,
                 .kernel_w = 3,
                 .stride_h = 2,
                 .stride_w = 1,
                 .pad_top = 1,
                 .pad_left = 1,
                 .pad_right = 1});  // unequal strides
  all.push_back({.batch = 1, .in_h = 12, .in_w = 5, .channels = 6, .kernel_h = 1, .kernel_w = 4, .pad_left = 3});
  all.push_back(square(16, 32, 24, 3, 1, {1, 1, 1, 1}));  // several parts in the weight gradient
  all.push_back(square(9, 37, 64, 3, 2, {1, 1, 1, 1}));
  all.push_back(square(17, 28, 24, 7, 1, {3, 3, 3, 3}));
  all.push_back(square(16, 29, 34, 5, 1, {2, 2, 2, 2}));
  all.push_back(square(33, 29, 40, 5, 2, {1, 2, 1, 2}));
  return all;
}

std::string name(const S& s) {
  return (::testing::Message() << "n" << s.batch << " " << s.in_h << "x" << s.in_w << "x" << s.channels << " m"
                               << s.multiplier << " k" << s.kernel_h << "x" << s.kernel_w << " s" << s.stride_h
                               << s.stride_w << " d" << s.dilation_h)
      .GetString();
}

/// Inputs of all three passes.
struct Inputs {
  Inputs(const S& s, DType dtype)
      : x(random_values(s.x_elements(), 1, dtype)),
        w(random_values(s.w_elements(), 2, dtype)),
        dy(random_values(s.y_elements(), 3, dtype)) {}
  std::vector<float> x, w, dy;
};

/// The three passes on a device; dw starts at `start` where given.
struct Results {
  Results(KernelDevice& device, const S& s, DType dtype, const Inputs& in, const std::vector<float>* start = nullptr)
      : y(device, s.y_elements(), dtype),
        dx(device, s.x_elements(), dtype),
        dw(device, s.w_elements(), DType::float32) {
    const DeviceBuffer x(device, in.x, dtype), w(device, in.w, dtype), dy(device, in.dy, dtype);
    if (start) dw.upload(start->data());
    GuardedBytes workspace(device, depthwise_conv2d_grad_weight_workspace_bytes(s, dtype, device.exec().device.kind));
    BANTAM_KERNEL(device.exec(), depthwise_conv2d_forward, s, dtype, x.data(), w.data(), y.data());
    BANTAM_KERNEL(device.exec(), depthwise_conv2d_grad_input, s, dtype, dy.data(), w.data(), dx.data());
    BANTAM_KERNEL(device.exec(), depthwise_conv2d_grad_weight, s, dtype, x.data(), dy.data(), dw.as<float>(),
                  start != nullptr, workspace.workspace());
    device.synchronize();
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = y.download_bytes();
    for (const GuardedBuffer* buffer : {&dx, &dw}) {
      const std::vector<std::uint8_t> more = buffer->download_bytes();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  GuardedBuffer y, dx, dw;
};

TEST_P(DepthwiseConv2dTest, HandComputed) {
  // One image of 2x3 with 2 channels, a 2x2 kernel, no padding: y[0, c] and y[1, c] by hand.
  const S s{.batch = 1, .in_h = 2, .in_w = 3, .channels = 2, .kernel_h = 2, .kernel_w = 2};
  Inputs in(s, DType::float32);
  in.x = {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60};
  in.w = {1, 1, 2, 0, 3, 0, 4, 2};
  in.dy = {1, 1, 10, 2};
  const Results r(device(), s, DType::float32, in);
  EXPECT_EQ(r.y.download(), (std::vector<float>{37, 110, 47, 140}));  // 1+4+12+20, 10+100; 2+6+15+24, 20+120
  EXPECT_EQ(r.dx.download(), (std::vector<float>{1, 1, 12, 2, 20, 0, 3, 0, 34, 2, 40, 4}));
  EXPECT_EQ(r.dw.download(), (std::vector<float>{21, 50, 32, 80, 54, 140, 65, 170}));
}

TEST_P(DepthwiseConv2dTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const S& s : shapes()) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << name(s));
      const Inputs in(s, dtype);
      const Results r(device(), s, dtype, in);
      const auto x = as_double(in.x), w = as_double(in.w), dy = as_double(in.dy);
      const std::int64_t taps = s.kernel_h * s.kernel_w;
      EXPECT_LT(relative_error(r.y.download(), reference::depthwise_conv2d_forward(s, x, w)),
                sum_tolerance(dtype, taps));
      EXPECT_LT(relative_error(r.dx.download(), reference::depthwise_conv2d_grad_input(s, dy, w)),
                sum_tolerance(dtype, taps * s.multiplier));
      // Sums of at most a few hundred terms are added part by part.
      EXPECT_LT(relative_error(r.dw.download(), reference::depthwise_conv2d_grad_weight(s, x, dy)),
                sum_tolerance(DType::float32, std::min<std::int64_t>(s.y_elements() / s.out_channels(), 256)));
    }
  }
}

TEST_P(DepthwiseConv2dTest, WeightGradientAccumulates) {
  for (const S& s : {square(2, 6, 20, 3, 1, {1, 1, 1, 1}), square(16, 32, 24, 3, 1, {1, 1, 1, 1})}) {
    const Inputs in(s, DType::float32);
    const std::vector<float> start = random_values(s.w_elements(), 9);
    const Results r(device(), s, DType::float32, in, &start);
    auto expected = reference::depthwise_conv2d_grad_weight(s, as_double(in.x), as_double(in.dy));
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += start[i];
    EXPECT_LT(relative_error(r.dw.download(), expected), sum_tolerance(DType::float32, 256));
  }
}

TEST_P(DepthwiseConv2dTest, SameBitsEveryTime) {
  const S s = square(16, 32, 24, 3, 1, {1, 1, 1, 1});
  const Inputs in(s, DType::float16);
  EXPECT_EQ(Results(device(), s, DType::float16, in).bytes(), Results(device(), s, DType::float16, in).bytes());
}

TEST_P(DepthwiseConv2dTest, UnalignedAddressesWork) {
  // One element into a buffer: vector loads must not be used.
  const S s = square(1, 5, 8, 3, 1, {1, 1, 1, 1});
  for (const DType dtype : kFloatingTypes) {
    const Inputs in(s, dtype);
    std::vector<float> shifted(in.x);
    shifted.insert(shifted.begin(), 7.0f);
    const DeviceBuffer x(device(), shifted, dtype), w(device(), in.w, dtype);
    GuardedBuffer y(device(), s.y_elements(), dtype);
    BANTAM_KERNEL(exec(), depthwise_conv2d_forward, s, dtype, x.as<char>() + size_of(dtype), w.data(), y.data());
    EXPECT_EQ(y.download(), Results(device(), s, dtype, in).y.download());
  }
}

TEST_P(DepthwiseConv2dTest, EmptyBatch) {
  const S s = square(0, 5, 8, 3, 1, {1, 1, 1, 1});
  const Results r(device(), s, DType::float32, Inputs(s, DType::float32));
  EXPECT_EQ(r.dw.download(), std::vector<float>(72, 0.0f));
}

TEST(DepthwiseConv2dCpuTest, SameBitsForAllThreads) {
  for (const S& s : shapes()) {
    const Inputs in(s, DType::float32);
    expect_same_bits_for_all_threads(
        [&](KernelDevice& device) { return Results(device, s, DType::float32, in).bytes(); });
  }
}

TEST(DepthwiseConv2dReferenceTest, GradientsAreTheDerivatives) {
  for (const S& s : {square(2, 5, 3, 3, 2, {0, 1, 1, 0}, 2), square(1, 6, 2, 3, 1, {2, 1, 0, 2}, 1, 2)}) {
    const Inputs in(s, DType::float32);
    const auto x = as_double(in.x), w = as_double(in.w), dy = as_double(in.dy);
    const auto loss = [&](const std::vector<double>& at_x, const std::vector<double>& at_w) {
      const auto y = reference::depthwise_conv2d_forward(s, at_x, at_w);
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    expect_gradient(x, reference::depthwise_conv2d_grad_input(s, dy, w), [&](const auto& v) { return loss(v, w); });
    expect_gradient(w, reference::depthwise_conv2d_grad_weight(s, x, dy), [&](const auto& v) { return loss(x, v); });
  }
}

TEST(FastDivideTest, IsExactBelowTwoToThe31) {
  constexpr std::uint32_t kTop = 0x7fffffff;
  for (const std::uint32_t d :
       {1u, 2u, 3u, 5u, 7u, 12u, 32u, 33u, 641u, 1000u, 65537u, 0x3fffffffu, 0x40000001u, kTop}) {
    const FastDivide by(d);
    for (const std::uint32_t near : {0u, d, 2 * (d / 2), kTop / d * d, kTop / 2, kTop}) {
      for (const std::int64_t n : {std::int64_t{near} - 1, std::int64_t{near}, std::int64_t{near} + 1}) {
        if (n < 0 || n > kTop) continue;
        const Divided got = by.divide(static_cast<std::uint32_t>(n));
        ASSERT_EQ(got.quotient, n / d) << n << " / " << d;
        ASSERT_EQ(got.remainder, n % d) << n << " / " << d;
      }
    }
  }
}

}  // namespace
}  // namespace bantam::kernels::depthwise_conv2d_test
