// Backward from a residual sum into a batch norm: by hand, and the bits of the kernels that it stands for.
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/norm/batch_norm_add.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::batch_norm_add_grad_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class BatchNormAddGradTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, BatchNormAddGradTest, ::testing::ValuesIn(test_devices()), device_test_name);

// One part and many; tiles that are whole and cut short; packs of eight, four and one channel; many columns.
constexpr BatchNormShape kShapes[] = {{1, 1},     {5, 3},     {33, 20},   {64, 64},   {70, 65},   {2000, 12},
                                      {1024, 64}, {1101, 64}, {700, 264}, {300, 512}, {3000, 32}, {2, 4099}};

/// Which operands the gradient has, and where results go.
struct Case {
  bool other = true, mask = true, dx = true, accumulate = false;
  ActivationFunction f{Activation::relu};
};

struct Operands {
  Operands(KernelDevice& device, const BatchNormShape& s, DType dtype)
      : x(device, random_values(s.rows * s.channels, 1, dtype, -3, 3), dtype),
        dy(device, random_values(s.rows * s.channels, 2, dtype), dtype),
        other(device, random_values(s.rows * s.channels, 3, dtype), dtype),
        bits(device, random_values((s.rows * s.channels + 7) / 8, 4, DType::float32, 0, 256), DType::uint8),
        scale(device, random_values(s.channels, 5, DType::float32, 0.5f, 2.0f), DType::float32),
        mean(device, random_values(s.channels, 6), DType::float32),
        inv_std(device, random_values(s.channels, 7, DType::float32, 0.5f, 2.0f), DType::float32) {}
  NormOperand norm() const {
    return {.x = x.data(),
            .affine = {.scale = scale.as<float>()},
            .mean = mean.as<float>(),
            .inv_std = inv_std.as<float>()};
  }
  SumGradient gradient(const Case& c) const {
    return {dy.data(), c.other ? other.data() : nullptr, c.mask ? bits.as<std::uint8_t>() : nullptr, c.f};
  }
  DeviceBuffer x, dy, other, bits, scale, mean, inv_std;
};

constexpr const char* kNames[] = {"dz", "dx", "dscale", "dshift"};

struct Results {
  Results(KernelDevice& device, const BatchNormShape& s, DType dtype)
      : dz(device, s.rows * s.channels, dtype),
        dx(device, s.rows * s.channels, dtype),
        dscale(device, random_values(s.channels, 8)),
        dshift(device, random_values(s.channels, 9)) {}
  NormGradients to(const Case& c) const {
    return {c.dx ? dx.data() : nullptr, dscale.as<float>(), dshift.as<float>(), c.accumulate};
  }
  std::vector<std::vector<std::uint8_t>> bytes() const {
    return {dz.download_bytes(), dx.download_bytes(), dscale.download_bytes(), dshift.download_bytes()};
  }
  GuardedBuffer dz, dx, dscale, dshift;
};

std::vector<std::vector<std::uint8_t>> fused(KernelDevice& device, const BatchNormShape& s, DType dtype,
                                             const Case& c) {
  const Operands in(device, s, dtype);
  const Results out(device, s, dtype);
  GuardedBytes workspace(device, batch_norm_workspace_bytes(s, dtype, device.exec().device.kind));
  BANTAM_KERNEL(device.exec(), batch_norm_add_grad, s, dtype, in.gradient(c), in.norm(), out.dz.data(), out.to(c),
                workspace.workspace());
  device.synchronize();
  return out.bytes();
}

std::vector<std::vector<std::uint8_t>> composed(KernelDevice& device, const BatchNormShape& s, DType dtype,
                                                const Case& c) {
  const Operands in(device, s, dtype);
  const Results out(device, s, dtype);
  GuardedBytes workspace(device, batch_norm_workspace_bytes(s, dtype, device.exec().device.kind));
  const std::int64_t count = s.rows * s.channels;
  copy_bytes(out.dz.data(), in.dy.data(), in.dy.bytes(), device.stream());
  if (c.other) BANTAM_KERNEL(device.exec(), add, count, dtype, in.dy.data(), in.other.data(), out.dz.data());
  if (c.mask)
    BANTAM_KERNEL(device.exec(), masked_activation_grad, c.f, count, dtype, in.bits.as<std::uint8_t>(), out.dz.data(),
                  out.dz.data());
  BANTAM_KERNEL(device.exec(), batch_norm_backward_training, s, dtype, in.norm(), out.dz.data(), out.to(c),
                workspace.workspace());
  device.synchronize();
  return out.bytes();
}

TEST_P(BatchNormAddGradTest, ByHand) {
  // One channel, three rows: dy + other = 3, 5, 1; the mask lets 3 and 1 through. x̂ = x - 2 = -1, 0, 1.
  const BatchNormShape s{3, 1};
  Operands in(device(), s, DType::float32);
  in.x.upload({1, 2, 3});
  in.dy.upload({1, 2, -1});
  in.other.upload({2, 3, 2});
  in.bits.upload({0b101});
  in.scale.upload({2});
  in.mean.upload({2});
  in.inv_std.upload({1});
  const Results out(device(), s, DType::float32);
  GuardedBytes workspace(device(), batch_norm_workspace_bytes(s, DType::float32, GetParam().kind));
  BANTAM_KERNEL(exec(), batch_norm_add_grad, s, DType::float32, in.gradient({}), in.norm(), out.dz.data(), out.to({}),
                workspace.workspace());
  EXPECT_EQ(out.dz.download(), (std::vector<float>{3, 0, 1}));
  EXPECT_EQ(out.dshift.download(), (std::vector<float>{4}));   // 3 + 0 + 1
  EXPECT_EQ(out.dscale.download(), (std::vector<float>{-2}));  // -3 + 0 + 1
  // 2·(dz - 4/3 + 2/3·x̂)
  const std::vector<float> dx = out.dx.download(), expected{2, -8.0f / 3, 2.0f / 3};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(dx[i], expected[i], 1e-6);
}

TEST_P(BatchNormAddGradTest, HasTheBitsOfTheKernelsItStandsFor) {
  constexpr ActivationFunction leaky{Activation::leaky_relu, 0.25f};
  for (const DType dtype : kFloatingTypes)
    for (const BatchNormShape& s : kShapes)
      for (const Case& c : {Case{}, Case{.other = false}, Case{.mask = false}, Case{.f = leaky},
                            Case{.dx = false, .accumulate = true}}) {
        SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << s.rows << "x" << s.channels << " other "
                                          << c.other << " mask " << c.mask << " dx " << c.dx);
        const auto actual = fused(device(), s, dtype, c), expected = composed(device(), s, dtype, c);
        for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(actual[i] == expected[i]) << kNames[i];
      }
}

TEST_P(BatchNormAddGradTest, WorksOverItsOperands) {
  for (const DType dtype : kFloatingTypes)
    for (const BatchNormShape& s : {BatchNormShape{33, 20}, BatchNormShape{1101, 64}}) {
      const auto expected = fused(device(), s, dtype, {});
      const Operands in(device(), s, dtype);
      const Results out(device(), s, dtype);
      GuardedBytes workspace(device(), batch_norm_workspace_bytes(s, dtype, GetParam().kind));
      NormGradients to = out.to({});
      to.dx = in.other.data();
      BANTAM_KERNEL(exec(), batch_norm_add_grad, s, dtype, in.gradient({}), in.norm(), in.dy.data(), to,
                    workspace.workspace());
      EXPECT_EQ(in.dy.download_bytes(), expected[0]);
      EXPECT_EQ(in.other.download_bytes(), expected[1]);
      EXPECT_EQ(out.dscale.download_bytes(), expected[2]);
    }
}

}  // namespace
}  // namespace bantam::kernels::batch_norm_add_grad_test
