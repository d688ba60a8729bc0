// The separable block's backward pass on the CPU against the reference in double: every kind of shape and type, codes
// of both kinds, accumulation, gradients nobody wants, the same bits on any number of threads.
#include <array>

#include "bantam/kernels/separable/separable_block_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/separable/separable_block_shapes.h"

namespace bantam::kernels::separable_block_cpu_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support
using S = SeparableBlockShape;

/// Operands, with codes as a forward pass could write them: a fifth of the windows closed where there is ReLU.
struct Inputs {
  Inputs(const S& s, DType dtype)
      : x(random_values(s.x_elements(), 1, dtype)),
        depthwise(random_values(s.depthwise_elements(), 2, dtype)),
        pointwise(random_values(s.pointwise_elements(), 3, dtype)),
        dy(random_values(s.y_elements(), 4, dtype)) {
    for (const float choice : random_values(s.y_elements(), 5, DType::float32, 0.0f, 5.0f)) {
      const int place = std::min(static_cast<int>(choice), 4);
      const bool closed = s.relu && place == 4;
      pixel.push_back(closed ? 0 : static_cast<std::uint8_t>(s.pool == 2 ? 1 << place % 4 : 1));
    }
    codes = reference::pack_codes(s, pixel);
  }
  std::vector<float> x, depthwise, pointwise, dy;
  std::vector<std::uint8_t> pixel, codes;
};

/// One backward pass; weight gradients start at `start`.
struct Results {
  Results(KernelDevice& device, const S& s, DType dtype, const Inputs& in, bool wants_dx = true,
          std::array<bool, 3> accumulate = {}, float start = 0.0f)
      : dx(device, s.x_elements(), dtype),
        depthwise(device, std::vector<float>(static_cast<std::size_t>(s.depthwise_elements()), start)),
        pointwise(device, std::vector<float>(static_cast<std::size_t>(s.pointwise_elements()), start)),
        bias(device, std::vector<float>(static_cast<std::size_t>(s.out_channels), start)) {
    const DeviceBuffer x(device, in.x, dtype), w_depthwise(device, in.depthwise, dtype);
    const DeviceBuffer w_pointwise(device, in.pointwise, dtype), dy(device, in.dy, dtype);
    const DeviceArray<std::uint8_t> codes(device, in.codes);
    GuardedBytes workspace(device,
                           separable_block_workspace_bytes(s, dtype, SeparableBlockPass::backward, DeviceKind::cpu));
    const SeparableBlockInputs inputs{
        .x = x.data(),
        .weights = {.depthwise = w_depthwise.data(), .pointwise = w_pointwise.data(), .bias = nullptr},
        .dy = dy.data(),
        .codes = in.codes.empty() ? nullptr : codes.data()};
    const SeparableBlockGradients to{.dx = wants_dx ? dx.data() : nullptr,
                                     .depthwise = {depthwise.as<float>(), accumulate[0]},
                                     .pointwise = {pointwise.as<float>(), accumulate[1]},
                                     .bias = {s.bias ? bias.as<float>() : nullptr, accumulate[2]},
                                     .partial_sums = nullptr};
    cpu::separable_block_backward(device.exec(), s, dtype, inputs, to, workspace.workspace());
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = dx.download_bytes();
    for (const GuardedBuffer* buffer : {&depthwise, &pointwise, &bias}) {
      const std::vector<std::uint8_t> more = buffer->download_bytes();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  GuardedBuffer dx, depthwise, pointwise, bias;
};

/// Sums over positions have at most a few hundred terms before parts are added; inner tensors are not rounded.
void expect_gradients(const Results& r, const S& s, DType dtype, const Inputs& in, std::array<double, 3> start = {}) {
  auto expected = reference::separable_block_backward(s, as_double(in.x), as_double(in.depthwise),
                                                      as_double(in.pointwise), as_double(in.dy), in.pixel);
  std::vector<double>* gradients[] = {&expected.d_depthwise, &expected.d_pointwise, &expected.d_bias};
  for (std::size_t i = 0; i < 3; ++i) {
    for (double& v : *gradients[i]) v += start[i];
  }
  const double tolerance = sum_tolerance(DType::float32, 1024);
  EXPECT_LT(relative_error(r.depthwise.download(), expected.d_depthwise), tolerance);
  EXPECT_LT(relative_error(r.pointwise.download(), expected.d_pointwise), tolerance);
  if (s.bias) {
    EXPECT_LT(relative_error(r.bias.download(), expected.d_bias), tolerance);
  }
  EXPECT_LT(relative_error(r.dx.download(), expected.dx), sum_tolerance(dtype, 9 * s.out_channels));
}

TEST(SeparableBlockCpuBackwardTest, MatchesReference) {
  KernelDevice device(Device::cpu());
  for (const DType dtype : kFloatingTypes) {
    for (const S& s : separable_block_shapes()) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << name_of(s));
      const Inputs in(s, dtype);
      expect_gradients(Results(device, s, dtype, in), s, dtype, in);
    }
  }
}

TEST(SeparableBlockCpuBackwardTest, EachGradientAccumulatesByItsOwnFlag) {
  KernelDevice device(Device::cpu());
  const S s{.batch = 40, .in_h = 9, .in_w = 8, .in_channels = 3, .out_channels = 32, .pool = 2};
  const Inputs in(s, DType::float32);
  for (std::size_t i = 0; i < 3; ++i) {
    std::array<bool, 3> accumulate{};
    std::array<double, 3> start{};
    accumulate[i] = true, start[i] = 3;
    expect_gradients(Results(device, s, DType::float32, in, true, accumulate, 3.0f), s, DType::float32, in, start);
  }
}

TEST(SeparableBlockCpuBackwardTest, UnwantedGradientsAreLeftAlone) {
  KernelDevice device(Device::cpu());
  for (const DType dtype : kFloatingTypes) {
    S s{.batch = 3, .in_h = 9, .in_w = 8, .in_channels = 8, .out_channels = 16, .bias = false};
    const Inputs in(s, dtype);
    const Results r(device, s, dtype, in, false, {}, 5.0f), all(device, s, dtype, in);
    EXPECT_EQ(r.bias.download(), std::vector<float>(static_cast<std::size_t>(s.out_channels), 5.0f));
    const std::vector<std::uint8_t> dx = r.dx.download_bytes();
    EXPECT_EQ(dx, std::vector<std::uint8_t>(dx.size(), 0xff)) << "dx was written";
    EXPECT_EQ(r.depthwise.download_bytes(), all.depthwise.download_bytes());
    EXPECT_EQ(r.pointwise.download_bytes(), all.pointwise.download_bytes());
  }
}

TEST(SeparableBlockCpuBackwardTest, SameBitsForAllThreads) {
  for (const S& s : separable_block_shapes()) {
    const Inputs in(s, DType::float32);
    expect_same_bits_for_all_threads(
        [&](KernelDevice& device) { return Results(device, s, DType::float32, in).bytes(); });
  }
}

TEST(SeparableBlockCpuBackwardTest, AnEmptyBatchStoresZerosOrKeepsSums) {
  KernelDevice device(Device::cpu());
  const S s{.batch = 0, .in_h = 9, .in_w = 8, .in_channels = 3, .out_channels = 8};
  const Inputs in(s, DType::float32);
  const Results r(device, s, DType::float32, in, true, {true, false, false}, 2.0f);
  EXPECT_EQ(r.depthwise.download(), std::vector<float>(static_cast<std::size_t>(s.depthwise_elements()), 2.0f));
  EXPECT_EQ(r.pointwise.download(), std::vector<float>(static_cast<std::size_t>(s.pointwise_elements()), 0.0f));
  EXPECT_EQ(r.bias.download(), std::vector<float>(static_cast<std::size_t>(s.out_channels), 0.0f));
}

}  // namespace
}  // namespace bantam::kernels::separable_block_cpu_test
