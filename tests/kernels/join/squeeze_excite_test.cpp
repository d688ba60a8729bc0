// Squeeze-and-excitation's mean and gate against hand values and the reference, on every device.
#include "bantam/kernels/join/squeeze_excite.h"

#include <array>
#include <cmath>
#include <memory>
#include <numeric>

#include "bantam/kernels/join/squeeze_excite_reference.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::squeeze_excite_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class SqueezeExciteTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, SqueezeExciteTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// Samples, channels and units: one of each, odd ones, groups of four, more samples than blocks, and more channels and
/// units than a block reads at once.
std::vector<SqueezeExciteShape> shapes(DType dtype = DType::float32) {
  constexpr std::array<std::array<std::int64_t, 3>, 8> kSizes = {
      {{1, 1, 1}, {2, 5, 3}, {7, 16, 4}, {300, 24, 6}, {700, 8, 8}, {3, 2100, 40}, {5, 48, 1200}, {2, 1030, 1}}};
  std::vector<SqueezeExciteShape> all;
  for (const auto& [samples, channels, units] : kSizes)
    all.push_back({samples, channels, units, 10, dtype, {Activation::silu}, {Activation::sigmoid}});
  return all;
}

std::string described(const SqueezeExciteShape& s) {
  return std::string(to_string(s.dtype)) + " " + std::to_string(s.samples) + "x" + std::to_string(s.channels) + " by " +
         std::to_string(s.units) + " " + std::string(to_string(s.activation.kind));
}

/// A gate's operands on a device, and its results.
class Gate {
 public:
  Gate(KernelDevice& device, const SqueezeExciteShape& s)
      : shape(s),
        mean(random_values(s.samples * s.channels, 1)),
        dfactor(random_values(s.samples * s.channels, 2)),
        device_(device) {
    // Small enough that the gate is not saturated.
    const float share = 2.0f / std::sqrt(static_cast<float>(std::max(s.channels, s.units)));
    parameters = {random_values(s.units * s.channels, 3, s.dtype, -share, share), random_values(s.units, 4, s.dtype),
                  random_values(s.units * s.channels, 5, s.dtype, -share, share),
                  random_values(s.channels, 6, s.dtype)};
    for (const auto* values :
         {&parameters.reduce, &parameters.reduce_bias, &parameters.expand, &parameters.expand_bias})
      weights_.push_back(std::make_unique<DeviceBuffer>(device, *values, s.dtype));
    mean_ = std::make_unique<DeviceBuffer>(device, mean, DType::float32);
    for (const std::int64_t width : {s.units, s.units, s.channels, s.channels})
      values_.push_back(std::make_unique<GuardedBuffer>(device, s.samples * width, DType::float32));
  }

  /// reduced, hidden, expanded, factor.
  std::vector<std::vector<float>> forward() {
    BANTAM_KERNEL(device_.exec(), squeeze_excite_forward, shape, mean_->as<float>(), weights(),
                  {values_[0]->as<float>(), values_[1]->as<float>(), values_[2]->as<float>(), values_[3]->as<float>()});
    std::vector<std::vector<float>> all;
    for (const auto& buffer : values_) all.push_back(buffer->download());
    return all;
  }
  /// After forward: dx_offset, then gradients of the parameters, added to `start` where it is not 0.
  std::vector<std::vector<float>> backward(float start = 0) {
    const DeviceBuffer up(device_, dfactor, DType::float32);
    std::vector<std::unique_ptr<GuardedBuffer>> to;
    for (const std::int64_t count : {shape.samples * shape.channels, shape.units * shape.channels, shape.units,
                                     shape.units * shape.channels, shape.channels})
      to.push_back(
          std::make_unique<GuardedBuffer>(device_, std::vector<float>(static_cast<std::size_t>(count), start)));
    const auto target = [&](std::size_t i) { return ParameterTarget{to[i]->as<float>(), start != 0}; };
    GuardedBytes workspace(device_, squeeze_excite_workspace_bytes(shape));
    BANTAM_KERNEL(device_.exec(), squeeze_excite_grad, shape,
                  {mean_->as<float>(), values_[0]->as<float>(), values_[1]->as<float>(), values_[2]->as<float>(),
                   up.as<float>(), weights()},
                  {to[0]->as<float>(), target(1), target(2), target(3), target(4)}, workspace.workspace());
    std::vector<std::vector<float>> all;
    for (const auto& buffer : to) all.push_back(buffer->download());
    return all;
  }

  SqueezeExciteShape shape;
  std::vector<float> mean, dfactor;
  reference::SqueezeExciteParameters<float> parameters;

 private:
  SqueezeExciteWeights weights() const {
    return {weights_[0]->data(), weights_[1]->data(), weights_[2]->data(), weights_[3]->data()};
  }
  KernelDevice& device_;
  std::vector<std::unique_ptr<DeviceBuffer>> weights_;
  std::unique_ptr<DeviceBuffer> mean_;
  std::vector<std::unique_ptr<GuardedBuffer>> values_;
};

reference::SqueezeExciteParameters<double> as_double(const reference::SqueezeExciteParameters<float>& p) {
  return {testing::as_double(p.reduce), testing::as_double(p.reduce_bias), testing::as_double(p.expand),
          testing::as_double(p.expand_bias)};
}

TEST_P(SqueezeExciteTest, HandComputed) {
  SqueezeExciteShape s{.samples = 1, .channels = 2, .units = 1, .positions = 4, .activation = {Activation::relu}};
  const DeviceBuffer mean(device(), {1, 2}, DType::float32), reduce(device(), {3, 4}, DType::float32);
  const DeviceBuffer reduce_bias(device(), std::vector<float>{-1}, DType::float32),
      expand(device(), {0.5f, -2}, DType::float32);
  const DeviceBuffer expand_bias(device(), {1, 30}, DType::float32), dfactor(device(), {10, 1}, DType::float32);
  const SqueezeExciteWeights weights{reduce.data(), reduce_bias.data(), expand.data(), expand_bias.data()};
  GuardedBuffer reduced(device(), 1, DType::float32), hidden(device(), 1, DType::float32);
  GuardedBuffer expanded(device(), 2, DType::float32), factor(device(), 2, DType::float32);
  BANTAM_KERNEL(exec(), squeeze_excite_forward, s, mean.as<float>(), weights,
                {reduced.as<float>(), hidden.as<float>(), expanded.as<float>(), factor.as<float>()});
  EXPECT_EQ(reduced.download(), (std::vector<float>{10}));
  EXPECT_EQ(factor.download(), (std::vector<float>{6, 10}));
  GuardedBuffer offset(device(), 2, DType::float32), d_reduce(device(), 2, DType::float32);
  GuardedBuffer d_reduce_bias(device(), 1, DType::float32), d_expand(device(), std::vector<float>{7, 8});
  GuardedBytes workspace(device(), squeeze_excite_workspace_bytes(s));
  BANTAM_KERNEL(
      exec(), squeeze_excite_grad, s,
      {mean.as<float>(), reduced.as<float>(), hidden.as<float>(), expanded.as<float>(), dfactor.as<float>(), weights},
      {.dx_offset = offset.as<float>(),
       .reduce = {d_reduce.as<float>()},
       .reduce_bias = {d_reduce_bias.as<float>()},
       .expand = {d_expand.as<float>(), true}},
      workspace.workspace());
  EXPECT_EQ(d_expand.download(), (std::vector<float>{107, 18}));  // dfactor·10, added
  EXPECT_EQ(d_reduce_bias.download(), (std::vector<float>{3}));   // 10·0.5 - 2
  EXPECT_EQ(d_reduce.download(), (std::vector<float>{3, 6}));
  EXPECT_EQ(offset.download(), (std::vector<float>{9.0f / 4, 3}));
}

TEST_P(SqueezeExciteTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes)
    for (const SqueezeExciteShape& s : shapes(dtype)) {
      SCOPED_TRACE(described(s));
      Gate gate(device(), s);
      const auto values = gate.forward();
      const auto expected =
          reference::squeeze_excite_forward(s, testing::as_double(gate.mean), as_double(gate.parameters));
      // Two sums, of channels and of units, and a few roundings of each activation.
      const double tolerance = sum_tolerance(DType::float32, s.channels + s.units + 8);
      EXPECT_LT(relative_error(values[0], expected.reduced), tolerance);
      EXPECT_LT(relative_error(values[1], expected.hidden), tolerance);
      EXPECT_LT(relative_error(values[2], expected.expanded), tolerance);
      EXPECT_LT(relative_error(values[3], expected.factor), tolerance);
      const auto gradients = gate.backward();
      auto wanted = reference::squeeze_excite_grad(s, testing::as_double(gate.mean), as_double(gate.parameters),
                                                   testing::as_double(gate.dfactor));
      for (double& v : wanted.dmean) v /= static_cast<double>(s.positions);
      const double more = tolerance + sum_tolerance(DType::float32, s.channels + s.units + s.samples);
      EXPECT_LT(relative_error(gradients[0], wanted.dmean), more);
      EXPECT_LT(relative_error(gradients[1], wanted.parameters.reduce), more);
      EXPECT_LT(relative_error(gradients[2], wanted.parameters.reduce_bias), more);
      EXPECT_LT(relative_error(gradients[3], wanted.parameters.expand), more);
      EXPECT_LT(relative_error(gradients[4], wanted.parameters.expand_bias), more);
      EXPECT_EQ(gate.backward(), gradients);
    }
}

TEST_P(SqueezeExciteTest, AppliesEveryActivation) {
  for (int kind = 0; kind < kActivationKinds; ++kind) {
    SqueezeExciteShape s = shapes()[2];
    s.activation = {static_cast<Activation>(kind), 0.3f};
    s.gate = {static_cast<Activation>(kActivationKinds - 1 - kind), 0.3f};
    SCOPED_TRACE(described(s));
    Gate gate(device(), s);
    const auto expected =
        reference::squeeze_excite_forward(s, testing::as_double(gate.mean), as_double(gate.parameters));
    EXPECT_LT(relative_error(gate.forward()[3], expected.factor), 1e-5);
    const auto wanted = reference::squeeze_excite_grad(s, testing::as_double(gate.mean), as_double(gate.parameters),
                                                       testing::as_double(gate.dfactor));
    EXPECT_LT(relative_error(gate.backward()[1], wanted.parameters.reduce), 1e-5);
  }
}

TEST_P(SqueezeExciteTest, AddsToGradients) {
  for (const SqueezeExciteShape& s : shapes()) {
    Gate gate(device(), s);
    (void)gate.forward();
    const auto alone = gate.backward(), added = gate.backward(2);
    EXPECT_EQ(added[0], alone[0]);  // always overwritten
    for (std::size_t i = 1; i < alone.size(); ++i)
      for (std::size_t k = 0; k < alone[i].size(); ++k) ASSERT_EQ(added[i][k], alone[i][k] + 2);
  }
}

TEST_P(SqueezeExciteTest, MeansMatchReference) {
  for (const DType dtype : kFloatingTypes)
    for (const auto& [samples, positions, channels] :
         std::initializer_list<std::array<std::int64_t, 3>>{{1, 1, 1}, {3, 49, 20}, {2, 5000, 5}, {1, 900, 300}}) {
      const ChannelScaleShape s{samples, positions, channels, dtype};
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << positions << "x" << channels);
      const std::vector<float> x = random_values(s.elements(), 1, dtype, 0.0f, 2.0f);
      const DeviceBuffer x_buffer(device(), x, dtype);
      GuardedBuffer mean(device(), s.factors(), DType::float32);
      GuardedBytes workspace(device(), channel_scale_workspace_bytes(s, GetParam().kind));
      BANTAM_KERNEL(exec(), position_mean, s, x_buffer.data(), mean.as<float>(), workspace.workspace());
      std::vector<double> expected(static_cast<std::size_t>(s.factors()));
      for (std::int64_t i = 0; i < s.elements(); ++i)
        expected[static_cast<std::size_t>(i / (positions * channels) * channels + i % channels)] +=
            static_cast<double>(x[static_cast<std::size_t>(i)]) / static_cast<double>(positions);
      EXPECT_LT(relative_error(mean.download(), expected),
                sum_tolerance(DType::float32, std::min<std::int64_t>(positions, 512)));
    }
}

TEST_P(SqueezeExciteTest, RefusesTooSmallWorkspace) {
  Gate gate(device(), shapes()[1]);
  GuardedBytes workspace(device(), squeeze_excite_workspace_bytes(gate.shape) - 1);
  EXPECT_THROW(BANTAM_KERNEL(exec(), squeeze_excite_grad, gate.shape, {}, {}, workspace.workspace()), Error);
}

TEST(SqueezeExciteCpuTest, SameBitsForAllThreads) {
  for (const SqueezeExciteShape& s : shapes(DType::float16))
    expect_same_bits_for_all_threads([&](KernelDevice& device) {
      Gate gate(device, s);
      auto all = gate.forward();
      for (const auto& gradient : gate.backward()) all.push_back(gradient);
      std::vector<std::uint8_t> bytes;
      for (const std::vector<float>& values : all) {
        const auto* first = reinterpret_cast<const std::uint8_t*>(values.data());
        bytes.insert(bytes.end(), first, first + values.size() * sizeof(float));
      }
      return bytes;
    });
}

TEST(SqueezeExciteReferenceTest, GradientsAreTheDerivatives) {
  const SqueezeExciteShape s{3, 4, 2, 1, DType::float32, {Activation::silu}, {Activation::sigmoid}};
  KernelDevice device(Device::cpu());
  const Gate gate(device, s);
  const auto mean = testing::as_double(gate.mean), dfactor = testing::as_double(gate.dfactor);
  const auto parameters = as_double(gate.parameters);
  const auto loss = [&](const std::vector<double>& in, const reference::SqueezeExciteParameters<double>& p) {
    const std::vector<double> factor = reference::squeeze_excite_forward(s, in, p).factor;
    return std::inner_product(factor.begin(), factor.end(), dfactor.begin(), 0.0);
  };
  const auto gradients = reference::squeeze_excite_grad(s, mean, parameters, dfactor);
  expect_gradient(mean, gradients.dmean, [&](const auto& in) { return loss(in, parameters); });
  for (auto member :
       {&reference::SqueezeExciteParameters<double>::reduce, &reference::SqueezeExciteParameters<double>::reduce_bias,
        &reference::SqueezeExciteParameters<double>::expand, &reference::SqueezeExciteParameters<double>::expand_bias})
    expect_gradient(parameters.*member, gradients.parameters.*member, [&](const auto& values) {
      auto moved = parameters;
      moved.*member = values;
      return loss(mean, moved);
    });
}

}  // namespace
}  // namespace bantam::kernels::squeeze_excite_test
