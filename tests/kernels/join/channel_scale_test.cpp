// Factors a sample and channel against hand values and the reference, on every device.
#include "bantam/kernels/join/channel_scale.h"

#include "bantam/kernels/join/join_reference.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::channel_scale_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class ChannelScaleTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, ChannelScaleTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// Every pack size, one part of positions and many, more channels than a block has.
std::vector<ChannelScaleShape> shapes() {
  std::vector<ChannelScaleShape> all;
  for (const auto& [samples, positions, channels] : std::initializer_list<std::array<std::int64_t, 3>>{
           {1, 1, 1}, {3, 7, 5}, {2, 49, 64}, {5, 30, 12}, {1, 5000, 16}, {2, 3000, 3}, {2, 9, 1100}, {70, 4, 40}})
    all.push_back({samples, positions, channels});
  return all;
}

std::vector<ChannelScaleShape> typed_shapes() {
  std::vector<ChannelScaleShape> all;
  for (const DType dtype : kFloatingTypes)
    for (const DType factors : {dtype, DType::float32})
      for (ChannelScaleShape shape : shapes()) {
        shape.dtype = dtype, shape.factor_dtype = factors;
        all.push_back(shape);
      }
  return all;
}

std::string described(const ChannelScaleShape& s) {
  return std::string(to_string(s.dtype)) + " by " + std::string(to_string(s.factor_dtype)) + " " +
         std::to_string(s.samples) + "x" + std::to_string(s.positions) + "x" + std::to_string(s.channels);
}

TEST_P(ChannelScaleTest, HandComputed) {
  const ChannelScaleShape shape{.samples = 2, .positions = 2, .channels = 2};
  const DeviceBuffer x(device(), {1, 2, 3, 4, 5, 6, 7, 8}, DType::float32);
  const DeviceBuffer factor(device(), {1, 10, 2, 20}, DType::float32), offset(device(), {0, 1, 2, 3}, DType::float32);
  GuardedBuffer y(device(), 8, DType::float32), sums(device(), 4, DType::float32);
  BANTAM_KERNEL(exec(), channel_scale_forward, shape, x.data(), factor.data(), nullptr, y.data());
  EXPECT_EQ(y.download(), (std::vector<float>{1, 20, 3, 40, 10, 120, 14, 160}));
  GuardedBytes workspace(device(), channel_scale_workspace_bytes(shape, GetParam().kind));
  BANTAM_KERNEL(exec(), channel_scale_grad, shape, {.x = x.data(), .factor = factor.data(), .dy = y.data()},
                {.dfactor = sums.data()}, workspace.workspace());
  EXPECT_EQ(sums.download(), (std::vector<float>{1 + 9, 40 + 160, 50 + 98, 720 + 1280}));
  BANTAM_KERNEL(exec(), channel_scale_forward, shape, x.data(), factor.data(), offset.data(), y.data());
  EXPECT_EQ(y.download(), (std::vector<float>{1, 21, 3, 41, 12, 123, 16, 163}));
}

TEST_P(ChannelScaleTest, MatchesReference) {
  for (const ChannelScaleShape& s : typed_shapes()) {
    SCOPED_TRACE(described(s));
    const std::vector<float> x = random_values(s.elements(), 1, s.dtype), dy = random_values(s.elements(), 2, s.dtype);
    const std::vector<float> factor = random_values(s.factors(), 3, s.factor_dtype);
    const std::vector<float> offset = random_values(s.factors(), 4, s.factor_dtype);
    const DeviceBuffer x_buffer(device(), x, s.dtype), dy_buffer(device(), dy, s.dtype),
        in_place(device(), dy, s.dtype);
    const DeviceBuffer factors(device(), factor, s.factor_dtype), offsets(device(), offset, s.factor_dtype);
    GuardedBuffer y(device(), s.elements(), s.dtype), sums(device(), s.factors(), s.factor_dtype);
    BANTAM_KERNEL(exec(), channel_scale_forward, s, x_buffer.data(), factors.data(), offsets.data(), y.data());
    EXPECT_LT(relative_error(y.download(),
                             reference::channel_scale_forward(s, as_double(x), as_double(factor), as_double(offset))),
              sum_tolerance(s.dtype, 2));
    GuardedBytes workspace(device(), channel_scale_workspace_bytes(s, GetParam().kind));
    BANTAM_KERNEL(exec(), channel_scale_grad, s,
                  {.x = x_buffer.data(), .factor = factors.data(), .dy = in_place.data()},
                  {.dx = in_place.data(), .dfactor = sums.data()}, workspace.workspace());
    EXPECT_LT(
        relative_error(in_place.download(), reference::channel_scale_forward(s, as_double(dy), as_double(factor))),
        sum_tolerance(s.dtype, 2));
    EXPECT_LT(relative_error(sums.download(), reference::channel_scale_grad_factor(s, as_double(x), as_double(dy))),
              sum_tolerance(DType::float32, std::min<std::int64_t>(s.positions, 512)) + unit_roundoff(s.factor_dtype));
    GuardedBuffer lone(device(), s.elements(), s.dtype);
    BANTAM_KERNEL(exec(), channel_scale_grad, s, {.factor = factors.data(), .dy = dy_buffer.data()},
                  {.dx = lone.data()}, Workspace{});
    EXPECT_EQ(lone.download(), in_place.download());
  }
}

TEST_P(ChannelScaleTest, NoPositionsSumToZero) {
  for (const DType factors : {DType::float16, DType::float32}) {
    const ChannelScaleShape s{.samples = 2, .channels = 3, .dtype = DType::float16, .factor_dtype = factors};
    GuardedBuffer sums(device(), 6, factors);
    GuardedBytes workspace(device(), channel_scale_workspace_bytes(s, GetParam().kind));
    BANTAM_KERNEL(exec(), channel_scale_grad, s, {}, {.dfactor = sums.data()}, workspace.workspace());
    EXPECT_EQ(sums.download(), std::vector<float>(6, 0.0f));
  }
}

TEST_P(ChannelScaleTest, RefusesTooSmallWorkspace) {
  const ChannelScaleShape s{.samples = 1, .positions = 20000, .channels = 64};
  const std::size_t needed = channel_scale_workspace_bytes(s, GetParam().kind);
  ASSERT_GT(needed, 256u);
  GuardedBuffer sums(device(), 64, DType::float32), x(device(), s.elements(), DType::float32);
  GuardedBytes workspace(device(), needed - 1);
  EXPECT_THROW(BANTAM_KERNEL(exec(), channel_scale_grad, s, {.x = x.data(), .dy = x.data()}, {.dfactor = sums.data()},
                             workspace.workspace()),
               Error);
}

TEST(ChannelScaleCpuTest, SameBitsForAllThreads) {
  for (const ChannelScaleShape& s : shapes())
    expect_same_bits_for_all_threads([&](KernelDevice& device) {
      const GuardedBuffer x(device, random_values(s.elements(), 1)), dy(device, random_values(s.elements(), 2));
      GuardedBuffer sums(device, s.factors(), DType::float32);
      GuardedBytes workspace(device, channel_scale_workspace_bytes(s, DeviceKind::cpu));
      BANTAM_KERNEL(device.exec(), channel_scale_grad, s, {.x = x.data(), .dy = dy.data()}, {.dfactor = sums.data()},
                    workspace.workspace());
      return sums.download_bytes();
    });
}

TEST(ChannelScaleReferenceTest, GradientsAreTheDerivatives) {
  const ChannelScaleShape s{.samples = 2, .positions = 3, .channels = 4};
  const std::vector<double> x = as_double(random_values(24, 1)), factor = as_double(random_values(8, 2));
  const std::vector<double> weight = as_double(random_values(24, 3));
  const auto loss = [&](const std::vector<double>& in, const std::vector<double>& by) {
    const std::vector<double> y = reference::channel_scale_forward(s, in, by);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i] * y[i];
    return sum;
  };
  std::vector<double> dy = reference::channel_scale_forward(s, x, factor);
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] *= 2 * weight[i];
  expect_gradient(x, reference::channel_scale_forward(s, dy, factor), [&](const auto& in) { return loss(in, factor); });
  expect_gradient(factor, reference::channel_scale_grad_factor(s, x, dy), [&](const auto& by) { return loss(x, by); });
}

}  // namespace
}  // namespace bantam::kernels::channel_scale_test
