// A norm before squeeze-and-excitation against plain loops in double, on every device.
#include "bantam/kernels/join/norm_gate.h"

#include <array>

#include "bantam/kernels/elementwise/activation_reference.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::norm_gate_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class NormGateTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, NormGateTest, ::testing::ValuesIn(test_devices()), device_test_name);

struct Case {
  ChannelScaleShape shape;
  ActivationFunction f;
  bool affine = true;  ///< with scale and shift
};

/// One part of positions and many, more channels than a block has, more samples than a block's rows; every activation.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [samples, positions, channels] : std::initializer_list<std::array<std::int64_t, 3>>{
           {1, 1, 8}, {3, 49, 40}, {2, 900, 24}, {1, 5000, 16}, {2, 9, 1096}, {70, 4, 136}})
    for (const DType dtype : kFloatingTypes)
      all.push_back({{samples, positions, channels, dtype}, {Activation::silu}, channels != 24});
  for (const Activation kind : {Activation::hard_swish, Activation::relu, Activation::relu6, Activation::none})
    for (const DType dtype : kFloatingTypes) all.push_back({{3, 49, 40, dtype}, {kind}});
  return all;
}

std::string described(const Case& c) {
  const ChannelScaleShape& s = c.shape;
  return std::string(to_string(s.dtype)) + " " + std::to_string(s.samples) + "x" + std::to_string(s.positions) + "x" +
         std::to_string(s.channels) + " " + std::string(to_string(c.f.kind));
}

/// Operands, and what the kernels compute of them.
struct Results {
  std::vector<float> mean, y, sums, dx, dscale, dshift;
  bool operator==(const Results&) const = default;
};

struct Operands {
  std::vector<float> x, dy, factor, offset, mean, inv_std, scale, shift;

  explicit Operands(const ChannelScaleShape& s)
      : x(random_values(s.elements(), 1, s.dtype, -2.0f, 3.0f)),
        dy(random_values(s.elements(), 2, s.dtype)),
        factor(random_values(s.factors(), 3, DType::float32, 0.1f, 1.0f)),
        offset(random_values(s.factors(), 4, DType::float32, -0.1f, 0.1f)),
        mean(random_values(s.channels, 5, DType::float32, 0.0f, 1.0f)),
        inv_std(random_values(s.channels, 6, DType::float32, 0.5f, 1.5f)),
        scale(random_values(s.channels, 7, DType::float32, 0.5f, 1.5f)),
        shift(random_values(s.channels, 8)) {}
};

Results computed(KernelDevice& device, const Case& c, float start = 0) {
  const ChannelScaleShape& s = c.shape;
  const Operands in(s);
  const auto vector = [&](const std::vector<float>& values) { return DeviceBuffer(device, values, DType::float32); };
  const DeviceBuffer x(device, in.x, s.dtype), dy(device, in.dy, s.dtype),
      factor = vector(in.factor), offset = vector(in.offset), channel_mean = vector(in.mean),
      inv_std = vector(in.inv_std), scale = vector(in.scale), shift = vector(in.shift);
  const NormOperand norm{.x = x.data(),
                         .affine = {.scale = c.affine ? scale.as<float>() : nullptr,
                                    .shift = c.affine ? shift.as<float>() : nullptr,
                                    .activation = c.f},
                         .mean = channel_mean.as<float>(),
                         .inv_std = inv_std.as<float>()};
  GuardedBuffer mean(device, s.factors(), DType::float32), y(device, s.elements(), s.dtype),
      sums(device, kNormGateSums * s.factors(), DType::float32);
  GuardedBuffer dscale(device, std::vector<float>(static_cast<std::size_t>(s.channels), start)),
      dshift(device, std::vector<float>(static_cast<std::size_t>(s.channels), start));
  GuardedBytes workspace(device, norm_gate_workspace_bytes(s, device.exec().device.kind));
  const Exec exec = device.exec();
  BANTAM_KERNEL(exec, norm_gate_mean, s, norm, mean.as<float>(), workspace.workspace());
  BANTAM_KERNEL(exec, norm_gate_apply, s, norm, factor.as<float>(), y.data(), workspace.workspace());
  BANTAM_KERNEL(exec, norm_gate_grad_sums, s, norm, dy.data(), sums.as<float>(), workspace.workspace());
  BANTAM_KERNEL(exec, norm_gate_grad, s,
                {.x = norm,
                 .dy = dy.data(),
                 .factor = factor.as<float>(),
                 .offset = offset.as<float>(),
                 .sums = sums.as<float>()},
                {dy.as<void>(), dscale.as<float>(), dshift.as<float>(), start != 0}, workspace.workspace());
  return {mean.download(), y.download(), sums.download(), dy.download(), dscale.download(), dshift.download()};
}

struct Expected {
  std::vector<double> mean, y, sums, dx, dscale, dshift;
};

Expected expected(const Case& c) {
  const ChannelScaleShape& s = c.shape;
  const Operands in(s);
  const auto factors = static_cast<std::size_t>(s.factors()), channels = static_cast<std::size_t>(s.channels);
  const auto elements = static_cast<std::size_t>(s.elements()), positions = static_cast<std::size_t>(s.positions);
  Expected to{
      std::vector<double>(factors),  std::vector<double>(elements), std::vector<double>(kNormGateSums * factors),
      std::vector<double>(elements), std::vector<double>(channels), std::vector<double>(channels)};
  std::vector<double> dz(elements), normalised(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const std::size_t channel = i % channels, at = i / (positions * channels) * channels + channel;
    const double apart = static_cast<double>(in.x[i]) - in.mean[channel];
    normalised[i] = apart * in.inv_std[channel];
    const double z = normalised[i] * (c.affine ? in.scale[channel] : 1.0) + (c.affine ? in.shift[channel] : 0.0);
    const double a = reference::activate(c.f.kind, static_cast<double>(c.f.slope), z);
    const double slope = reference::activation_derivative(c.f.kind, static_cast<double>(c.f.slope), z);
    to.mean[at] += a / static_cast<double>(s.positions);
    to.y[i] = a * in.factor[at];
    const double terms[kNormGateSums] = {in.dy[i] * a, slope * in.dy[i], slope * in.dy[i] * apart, slope,
                                         slope * apart};
    for (std::size_t k = 0; k < kNormGateSums; ++k) to.sums[k * factors + at] += terms[k];
    dz[i] = slope * (static_cast<double>(in.dy[i]) * in.factor[at] + in.offset[at]);
    to.dshift[channel] += dz[i];
    to.dscale[channel] += dz[i] * normalised[i];
  }
  const double rows = static_cast<double>(s.samples * s.positions);
  for (std::size_t i = 0; i < elements; ++i) {
    const std::size_t channel = i % channels;
    to.dx[i] = in.inv_std[channel] * (c.affine ? in.scale[channel] : 1.0) *
               (dz[i] - to.dshift[channel] / rows - normalised[i] * to.dscale[channel] / rows);
  }
  return to;
}

TEST_P(NormGateTest, MatchesReference) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(described(c));
    const Results got = computed(device(), c);
    const Expected want = expected(c);
    // a is rounded to x's type; sums are float32, of up to some thousand positions in blocks.
    const double value = 4 * unit_roundoff(c.shape.dtype) + sum_tolerance(DType::float32, 64);
    EXPECT_LT(relative_error(got.mean, want.mean), value);
    EXPECT_LT(relative_error(got.y, want.y), value);
    EXPECT_LT(relative_error(got.sums, want.sums), value);
    EXPECT_LT(relative_error(got.dshift, want.dshift), sum_tolerance(DType::float32, 256));
    EXPECT_LT(relative_error(got.dscale, want.dscale), sum_tolerance(DType::float32, 256));
    EXPECT_LT(relative_error(got.dx, want.dx), value);
    EXPECT_EQ(computed(device(), c), got) << "deterministic";
  }
}

TEST_P(NormGateTest, AddsToGradients) {
  const Case c = cases()[3];
  const Results alone = computed(device(), c), added = computed(device(), c, 2);
  EXPECT_EQ(added.dx, alone.dx);
  for (std::size_t i = 0; i < alone.dscale.size(); ++i) {
    EXPECT_EQ(added.dscale[i], alone.dscale[i] + 2);
    EXPECT_EQ(added.dshift[i], alone.dshift[i] + 2);
  }
}

TEST_P(NormGateTest, RefusesWhatItDoesNotSupport) {
  EXPECT_FALSE(norm_gate_supports(12, {Activation::silu}));
  EXPECT_FALSE(norm_gate_supports(16, {Activation::gelu}));
  const ChannelScaleShape s{1, 4, 16};
  GuardedBytes workspace(device(), norm_gate_workspace_bytes(s, GetParam().kind) - 1);
  EXPECT_THROW(BANTAM_KERNEL(exec(), norm_gate_mean, s, {}, nullptr, workspace.workspace()), Error);
}

TEST(NormGateCpuTest, SameBitsForAllThreads) {
  expect_same_bits_for_all_threads([&](KernelDevice& device) {
    const Results r = computed(device, {{2, 900, 24, DType::float16}, {Activation::silu}});
    std::vector<std::uint8_t> bytes;
    for (const auto* values : {&r.mean, &r.y, &r.sums, &r.dx, &r.dscale, &r.dshift}) {
      const auto* first = reinterpret_cast<const std::uint8_t*>(values->data());
      bytes.insert(bytes.end(), first, first + values->size() * sizeof(float));
    }
    return bytes;
  });
}

}  // namespace
}  // namespace bantam::kernels::norm_gate_test
