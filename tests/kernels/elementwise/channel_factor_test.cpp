// A factor a channel and PReLU: by hand, PyTorch's values, the reference, finite differences, in place, determinism.
#include "bantam/kernels/elementwise/channel_factor.h"

#include <cmath>
#include <limits>

#include "bantam/kernels/elementwise/channel_factor_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::channel_factor_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class ChannelFactorTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, ChannelFactorTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// Scalar, whole-vector and mixed channel counts; one part and many parts.
std::vector<ChannelFactorShape> shapes() {
  std::vector<ChannelFactorShape> all;
  constexpr std::int64_t kSizes[][2] = {{1, 1},     {5, 3},     {40, 8},     {33, 20},  {100, 64}, {70, 65},
                                        {7000, 64}, {30000, 3}, {2000, 260}, {1, 4097}, {9000, 1}};
  for (const auto& [rows, channels] : kSizes)
    for (const bool negative_only : {false, true})
      for (const bool shared : {false, true}) all.push_back({rows, channels, negative_only, shared});
  return all;
}

std::string name_of(const ChannelFactorShape& s, DType dtype) {
  return std::to_string(s.rows) + "x" + std::to_string(s.channels) + (s.negative_only ? " prelu" : "") +
         (s.shared ? " shared " : " ") + std::string(to_string(dtype));
}

std::vector<float> forward(KernelDevice& device, const ChannelFactorShape& shape, DType dtype,
                           const std::vector<float>& x, const std::vector<float>& s) {
  const DeviceBuffer in(device, x, dtype), factors(device, s, DType::float32);
  GuardedBuffer y(device, static_cast<std::int64_t>(x.size()), dtype);
  BANTAM_KERNEL(device.exec(), channel_factor_forward, shape, dtype, in.data(),
                static_cast<const float*>(factors.data()), y.data());
  return y.download();
}

struct Grads {
  std::vector<float> dx, ds;
};

/// Both gradients; `start` is what ds is added to. Without either: the other must have the same bits.
Grads grad(KernelDevice& device, const ChannelFactorShape& shape, DType dtype, const std::vector<float>& x,
           const std::vector<float>& s, const std::vector<float>& dy, const std::vector<float>* start = nullptr) {
  const DeviceBuffer in(device, x, dtype), factors(device, s, DType::float32), up(device, dy, dtype);
  const ChannelFactorGradInputs inputs{in.data(), static_cast<const float*>(factors.data()), up.data()};
  GuardedBytes workspace(device, channel_factor_grad_workspace_bytes(shape, device.exec().device.kind));
  GuardedBuffer dx(device, static_cast<std::int64_t>(x.size()), dtype),
      alone(device, static_cast<std::int64_t>(x.size()), dtype);
  GuardedBuffer ds(device, start != nullptr ? *start : std::vector<float>(s.size(), 1e30f));
  GuardedBuffer other(device, start != nullptr ? *start : std::vector<float>(s.size(), 1e30f));
  const bool accumulate = start != nullptr;
  const auto run = [&](const ChannelFactorGradients& to) {
    BANTAM_KERNEL(device.exec(), channel_factor_grad, shape, dtype, inputs, to, workspace.workspace());
  };
  run({dx.data(), ds.as<float>(), accumulate});
  run({alone.data(), nullptr, accumulate});
  run({nullptr, other.as<float>(), accumulate});
  EXPECT_EQ(alone.download_bytes(), dx.download_bytes());
  EXPECT_EQ(other.download_bytes(), ds.download_bytes());
  return {dx.download(), ds.download()};
}

std::vector<std::uint8_t> grad_bytes(KernelDevice& device, const ChannelFactorShape& shape, DType dtype) {
  const std::vector<float> x = random_values(shape.rows * shape.channels, 1, dtype);
  const Grads g = grad(device, shape, dtype, x, random_values(shape.factors(), 3), x);
  std::vector<std::uint8_t> bytes(4 * (g.dx.size() + g.ds.size()));
  std::memcpy(bytes.data(), g.dx.data(), 4 * g.dx.size());
  std::memcpy(bytes.data() + 4 * g.dx.size(), g.ds.data(), 4 * g.ds.size());
  return bytes;
}

TEST_P(ChannelFactorTest, ByHand) {
  const ChannelFactorShape scale{.rows = 2, .channels = 3}, prelu{.rows = 2, .channels = 3, .negative_only = true};
  const std::vector<float> x = {1, -2, 0, -4, 5, 6}, s = {10, 100, 0.5f}, dy = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(forward(device(), scale, DType::float32, x, s), (std::vector<float>{10, -200, 0, -40, 500, 3}));
  EXPECT_EQ(forward(device(), prelu, DType::float32, x, s), (std::vector<float>{1, -200, 0, -40, 5, 6}));
  Grads g = grad(device(), scale, DType::float32, x, s, dy);
  EXPECT_EQ(g.dx, (std::vector<float>{10, 200, 1.5f, 40, 500, 3}));
  EXPECT_EQ(g.ds, (std::vector<float>{1 - 16, -4 + 25, 36}));
  g = grad(device(), prelu, DType::float32, x, s, dy);
  EXPECT_EQ(g.dx, (std::vector<float>{1, 200, 1.5f, 40, 5, 6}));  // the slope's at 0
  EXPECT_EQ(g.ds, (std::vector<float>{-16, -4, 0}));
  const std::vector<float> start = {7};
  const ChannelFactorShape shared{.rows = 2, .channels = 3, .negative_only = true, .shared = true};
  EXPECT_EQ(grad(device(), shared, DType::float32, x, {10}, dy, &start).ds, (std::vector<float>{7 - 20}));
}

// torch.nn.functional.prelu of PyTorch 2.5.1 in double, at x[i] = 3·sin(0.7·i), dy[i] = cos(0.3·i).
TEST_P(ChannelFactorTest, PyTorchsPrelu) {
  std::vector<float> x, dy;
  for (int i = 0; i < 15; ++i) {
    x.push_back(static_cast<float>(3 * std::sin(0.7 * i)));
    dy.push_back(static_cast<float>(std::cos(0.3 * i)));
  }
  const std::vector<float> slopes = {0.25f, -0.5f, 0.1f, 2.0f, 0.0f};
  const std::vector<double> y = {0,           1.9326531, 2.9563491,   2.589628,   1.0049645,
                                 -0.26308742, 1.3073636, -0.29473579, -3.7875998, 0.050441701,
                                 1.9709598,   2.9645047, 2.5637968,   0.95729506, 0};
  const std::vector<double> dx = {0.25,        0.95533651,  0.82533562,  0.62160999, 0.36235777,
                                  0.017684299, 0.11360104,  -0.05048461, -1.4747875, -0.90407217,
                                  -0.9899925,  -0.98747975, -0.89675844, -0.7259323, 0};
  const ChannelFactorShape shape{.rows = 3, .channels = 5, .negative_only = true};
  constexpr double kTolerance = 1e-6;  // a few roundings of float32, and of these digits
  expect_close(forward(device(), shape, DType::float32, x, slopes), y, kTolerance);
  const Grads g = grad(device(), shape, DType::float32, x, slopes, dy);
  expect_close(g.dx, dx, kTolerance);
  expect_close(g.ds, std::vector<double>{-0.074440268, 0.59407149, 1.4879621, 1.3964762, 0.53901105}, kTolerance);
  const ChannelFactorShape shared{.rows = 3, .channels = 5, .negative_only = true, .shared = true};
  expect_close(grad(device(), shared, DType::float32, x, {0.25f}, dy).ds, std::vector<double>{3.9430806}, kTolerance);
}

TEST_P(ChannelFactorTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const ChannelFactorShape& shape : shapes()) {
      SCOPED_TRACE(name_of(shape, dtype));
      const std::int64_t count = shape.rows * shape.channels;
      const std::vector<float> x = random_values(count, 1, dtype), dy = random_values(count, 2, dtype, 0.5f, 1.5f);
      const std::vector<float> s = random_values(shape.factors(), 3, DType::float32, 0.25f, 2.0f);
      EXPECT_LT(relative_error(forward(device(), shape, dtype, x, s),
                               reference::channel_factor_forward(shape, as_double(x), as_double(s))),
                sum_tolerance(dtype, 2));
      const std::vector<float> start = random_values(shape.factors(), 4);
      auto expected = reference::channel_factor_grad(shape, as_double(x), as_double(s), as_double(dy));
      for (std::size_t i = 0; i < start.size(); ++i) expected.ds[i] += start[i];
      const Grads g = grad(device(), shape, dtype, x, s, dy, &start);
      EXPECT_LT(relative_error(g.dx, expected.dx), sum_tolerance(dtype, 2));
      // Sums run in blocks of at most 512 terms or so. Their terms x·dy have either sign: a sum cancels by about the
      // root of the number of its terms.
      const std::int64_t terms = shape.rows * (shape.shared ? shape.channels : 1);
      EXPECT_LT(relative_error(g.ds, expected.ds), sum_tolerance(DType::float32, std::min<std::int64_t>(terms, 512)) *
                                                       std::sqrt(static_cast<double>(terms)));
    }
  }
}

TEST_P(ChannelFactorTest, OutputsMayAliasInputs) {
  for (const ChannelFactorShape& shape :
       {ChannelFactorShape{50, 65, true, false}, ChannelFactorShape{700, 64, false, true}})
    for (const DType dtype : kFloatingTypes) {
      const std::int64_t count = shape.rows * shape.channels;
      const std::vector<float> x = random_values(count, 1, dtype), dy = random_values(count, 2, dtype);
      const std::vector<float> s = random_values(shape.factors(), 3);
      const DeviceBuffer in(device(), x, dtype), up(device(), dy, dtype), factors(device(), s, DType::float32);
      const auto* f = static_cast<const float*>(factors.data());
      GuardedBuffer ds(device(), shape.factors(), DType::float32);
      GuardedBytes workspace(device(), channel_factor_grad_workspace_bytes(shape, GetParam().kind));
      BANTAM_KERNEL(exec(), channel_factor_grad, shape, dtype, {in.data(), f, up.data()},
                    {up.data(), ds.as<float>(), false}, workspace.workspace());
      BANTAM_KERNEL(exec(), channel_factor_forward, shape, dtype, in.data(), f, in.data());
      EXPECT_EQ(in.download(), forward(device(), shape, dtype, x, s));
      const Grads apart = grad(device(), shape, dtype, x, s, dy);
      EXPECT_EQ(up.download(), apart.dx);
      EXPECT_EQ(ds.download(), apart.ds);
    }
}

TEST_P(ChannelFactorTest, NanStaysNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const bool prelu : {false, true}) {
    const ChannelFactorShape shape{.rows = 1, .channels = 2, .negative_only = prelu};
    EXPECT_TRUE(std::isnan(forward(device(), shape, DType::float32, {nan, 1}, {2, 2})[0]));
    EXPECT_TRUE(std::isnan(grad(device(), shape, DType::float32, {nan, 1}, {2, 2}, {1, 1}).ds[0]));
  }
}

TEST_P(ChannelFactorTest, NothingOfNothing) {
  GuardedBuffer ds(device(), std::vector<float>{5, 6, 7});
  const ChannelFactorShape none{.rows = 0, .channels = 3};
  GuardedBytes workspace(device(), channel_factor_grad_workspace_bytes(none, GetParam().kind));
  const DeviceBuffer s(device(), {1, 2, 3}, DType::float32);
  const ChannelFactorGradInputs in{nullptr, static_cast<const float*>(s.data()), nullptr};
  BANTAM_KERNEL(exec(), channel_factor_grad, none, DType::float32, in, {nullptr, ds.as<float>(), true},
                workspace.workspace());
  EXPECT_EQ(ds.download(), (std::vector<float>{5, 6, 7}));
  BANTAM_KERNEL(exec(), channel_factor_grad, none, DType::float32, in, {nullptr, ds.as<float>(), false},
                workspace.workspace());
  EXPECT_EQ(ds.download(), (std::vector<float>{0, 0, 0}));
}

TEST_P(ChannelFactorTest, RefusesTooSmallWorkspace) {
  const ChannelFactorShape shape{.rows = 40, .channels = 8};
  GuardedBuffer x(device(), 320, DType::float32), s(device(), 8, DType::float32);
  GuardedBytes workspace(device(), channel_factor_grad_workspace_bytes(shape, GetParam().kind) - 1);
  EXPECT_THROW(BANTAM_KERNEL(exec(), channel_factor_grad, shape, DType::float32, {x.data(), s.as<float>(), x.data()},
                             {x.data(), s.as<float>(), false}, workspace.workspace()),
               Error);
}

TEST_P(ChannelFactorTest, GradientIsDeterministic) {
  for (const ChannelFactorShape& shape : shapes())
    EXPECT_EQ(grad_bytes(device(), shape, DType::float16), grad_bytes(device(), shape, DType::float16));
}

TEST(ChannelFactorCpuTest, SameBitsForAllThreads) {
  for (const ChannelFactorShape& shape : shapes())
    expect_same_bits_for_all_threads([&](KernelDevice& device) { return grad_bytes(device, shape, DType::float32); });
}

TEST(ChannelFactorReferenceTest, GradientsAreTheDerivatives) {
  const std::vector<double> x = as_double(random_values(12, 1)), weight = as_double(random_values(12, 2));
  for (const bool prelu : {false, true})
    for (const bool shared : {false, true}) {
      const ChannelFactorShape shape{4, 3, prelu, shared};
      const std::vector<double> s = as_double(random_values(shape.factors(), 3));
      const auto loss = [&](const std::vector<double>& at_x, const std::vector<double>& at_s) {
        const std::vector<double> y = reference::channel_factor_forward(shape, at_x, at_s);
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i];
        return sum;
      };
      const auto g = reference::channel_factor_grad(shape, x, s, weight);
      expect_gradient(x, g.dx, [&](const auto& at) { return loss(at, s); });
      expect_gradient(s, g.ds, [&](const auto& at) { return loss(x, at); });
    }
}

}  // namespace
}  // namespace bantam::kernels::channel_factor_test
