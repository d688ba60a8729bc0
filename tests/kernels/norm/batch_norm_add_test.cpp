// The sum over batch norms: by hand, the bits of the kernels it stands for, every device against the reference,
// aliasing.
#include "bantam/kernels/norm/batch_norm_add.h"

#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/norm/batch_norm_add_reference.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::batch_norm_add_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class BatchNormAddTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, BatchNormAddTest, ::testing::ValuesIn(test_devices()), device_test_name);

constexpr ActivationFunction kFunctions[] = {
    {Activation::none}, {Activation::relu}, {Activation::relu6}, {Activation::leaky_relu, 0.25f}};

// Rows of whole bytes of the mask, and others; few and many rows and channels.
constexpr BatchNormShape kShapes[] = {{1, 1},  {5, 3},   {7, 8},      {33, 20},   {65, 16},   {70, 65},
                                      {3, 24}, {40, 64}, {3000, 264}, {9000, 12}, {20000, 8}, {2, 4099}};

/// The values of one operand: x, and its norm's.
struct Values {
  Values(const BatchNormShape& s, DType dtype, std::uint64_t seed)
      : x(random_values(s.rows * s.channels, seed, dtype, -3, 3)),
        scale(random_values(s.channels, seed + 1, DType::float32, 0.5f, 2.0f)),
        shift(random_values(s.channels, seed + 2)),
        mean(random_values(s.channels, seed + 3)),
        inv_std(random_values(s.channels, seed + 4, DType::float32, 0.5f, 2.0f)) {}
  std::vector<float> x, scale, shift, mean, inv_std;

  reference::NormOperand<double> reference(bool normalised) const {
    if (!normalised) return {as_double(x), {}, {}, {}};
    return {as_double(x), {as_double(scale), as_double(shift), {}}, as_double(mean), as_double(inv_std)};
  }
};

/// An operand on a device.
struct Operand {
  Operand(KernelDevice& device, const Values& v, DType dtype)
      : x(device, v.x, dtype),
        scale(device, v.scale, DType::float32),
        shift(device, v.shift, DType::float32),
        mean(device, v.mean, DType::float32),
        inv_std(device, v.inv_std, DType::float32) {}
  NormOperand get(bool normalised) const {
    if (!normalised) return {.x = x.data()};
    return {.x = x.data(),
            .affine = {scale.as<float>(), shift.as<float>(), {}},
            .mean = mean.as<float>(),
            .inv_std = inv_std.as<float>()};
  }
  DeviceBuffer x, scale, shift, mean, inv_std;
};

/// The sum on a device, with its mask.
struct Fused {
  Fused(KernelDevice& device, ActivationFunction f, const BatchNormShape& s, DType dtype, const Values& left,
        const Values& right, bool both)
      : y(device, s.rows * s.channels, dtype), mask(device, activation_mask_bytes(s.rows * s.channels)) {
    const Operand a(device, left, dtype), b(device, right, dtype);
    BANTAM_KERNEL(device.exec(), batch_norm_add, f, s, dtype, a.get(true), b.get(both), y.data(),
                  mask.as<std::uint8_t>());
    device.synchronize();
  }
  GuardedBuffer y;
  GuardedBytes mask;
};

/// The same by the kernels that it stands for.
struct Composed {
  Composed(KernelDevice& device, ActivationFunction f, const BatchNormShape& s, DType dtype, const Values& left,
           const Values& right, bool both)
      : y(device, s.rows * s.channels, dtype), mask(device, activation_mask_bytes(s.rows * s.channels)) {
    const Operand a(device, left, dtype), b(device, right, dtype);
    GuardedBuffer other(device, s.rows * s.channels, dtype);
    apply(device, s, dtype, a.get(true), y.data());
    if (both) apply(device, s, dtype, b.get(true), other.data());
    BANTAM_KERNEL(device.exec(), masked_activation_forward, f, s.rows * s.channels, dtype, y.data(),
                  both ? other.data() : b.x.data(), y.data(), mask.as<std::uint8_t>());
    device.synchronize();
  }
  static void apply(KernelDevice& device, const BatchNormShape& s, DType dtype, const NormOperand& operand, void* y) {
    BANTAM_KERNEL(device.exec(), batch_norm_apply, s, dtype, operand.x, operand.affine, operand.mean, operand.inv_std,
                  y);
  }
  GuardedBuffer y;
  GuardedBytes mask;
};

std::string name(ActivationFunction f, const BatchNormShape& s, DType dtype, bool both) {
  return (::testing::Message() << to_string(f.kind) << " " << to_string(dtype) << " " << s.rows << "x" << s.channels
                               << (both ? " both" : ""))
      .GetString();
}

TEST_P(BatchNormAddTest, ByHand) {
  const BatchNormShape s{2, 2};
  Values a(s, DType::float32, 1), b(s, DType::float32, 2);
  a.x = {1, -4, 3, 4};
  a.mean = {2, 0};
  a.inv_std = {1, 0.25f};
  a.scale = {2, 1};
  a.shift = {10, 0};  // normalised: 8 -1; 12 1
  b.x = {-9, 1, -12, 3};
  const Fused sum(device(), {Activation::relu}, s, DType::float32, a, b, false);  // -1 0; 0 4
  EXPECT_EQ(sum.y.download(), (std::vector<float>{0, 0, 0, 4}));
  EXPECT_EQ(sum.mask.download_bytes(), (std::vector<std::uint8_t>{0b1000}));
  const Fused leaky(device(), {Activation::leaky_relu, 0.5f}, s, DType::float32, a, b, false);
  EXPECT_EQ(leaky.y.download(), (std::vector<float>{-0.5f, 0, 0, 4}));
  EXPECT_EQ(leaky.mask.download_bytes(), (std::vector<std::uint8_t>{0b1000})) << "f'(0) is the slope";
  b.mean = {-10, 1};
  b.inv_std = {1, 0.5f};
  b.scale = {3, 4};
  b.shift = {0, 1};  // normalised: 3 1; -6 5
  EXPECT_EQ(Fused(device(), {Activation::relu6}, s, DType::float32, a, b, true).y.download(),
            (std::vector<float>{6, 0, 6, 6}));
}

TEST_P(BatchNormAddTest, HasTheBitsOfTheKernelsItStandsFor) {
  for (const ActivationFunction f : kFunctions)
    for (const DType dtype : kFloatingTypes)
      for (const BatchNormShape& s : kShapes)
        for (const bool both : {false, true}) {
          SCOPED_TRACE(name(f, s, dtype, both));
          const Values a(s, dtype, 10), b(s, dtype, 20);
          const Fused fused(device(), f, s, dtype, a, b, both);
          const Composed composed(device(), f, s, dtype, a, b, both);
          EXPECT_EQ(fused.y.download_bytes(), composed.y.download_bytes());
          EXPECT_EQ(fused.mask.download_bytes(), composed.mask.download_bytes());
        }
}

TEST_P(BatchNormAddTest, IsTheReference) {
  for (const DType dtype : kFloatingTypes)
    for (const BatchNormShape& s : {BatchNormShape{33, 20}, BatchNormShape{40, 64}})
      for (const bool both : {false, true}) {
        SCOPED_TRACE(name({Activation::relu}, s, dtype, both));
        const Values a(s, dtype, 10), b(s, dtype, 20);
        const auto expected =
            reference::batch_norm_add<double>({Activation::relu}, a.reference(true), b.reference(both));
        const Fused fused(device(), {Activation::relu}, s, dtype, a, b, both);
        // The norms' results are rounded, then their sum; sums cancel a little.
        EXPECT_LT(relative_error(fused.y.download(), expected.y), 4 * unit_roundoff(dtype));
      }
}

TEST_P(BatchNormAddTest, WithoutAMaskAndOverEitherOperand) {
  for (const DType dtype : kFloatingTypes)
    for (const BatchNormShape& s : {BatchNormShape{33, 20}, BatchNormShape{70, 64}})
      for (const bool both : {false, true}) {
        SCOPED_TRACE(name({Activation::relu}, s, dtype, both));
        const Values left(s, dtype, 10), right(s, dtype, 20);
        const auto expected = Fused(device(), {Activation::relu}, s, dtype, left, right, both).y.download();
        for (const bool over_first : {true, false}) {
          const Operand a(device(), left, dtype), b(device(), right, dtype);
          const DeviceBuffer& y = over_first ? a.x : b.x;
          BANTAM_KERNEL(exec(), batch_norm_add, ActivationFunction{Activation::relu}, s, dtype, a.get(true),
                        b.get(both), y.data(), nullptr);
          EXPECT_EQ(y.download(), expected);
        }
      }
}

TEST_P(BatchNormAddTest, UnalignedAddressesAndMissingVectors) {
  const BatchNormShape s{50, 16};
  const std::int64_t count = s.rows * s.channels;
  for (const DType dtype : kFloatingTypes) {
    Values left({count + 1, 1}, dtype, 10), right(s, dtype, 20);
    const DeviceBuffer x(device(), left.x, dtype);
    const Operand b(device(), right, dtype);
    Values aligned(s, dtype, 30);
    aligned.x = {left.x.begin() + 1, left.x.end()};
    aligned.scale.assign(aligned.scale.size(), 1.0f);
    aligned.shift.assign(aligned.shift.size(), 0.0f);
    const Operand norm(device(), aligned, dtype);
    NormOperand a = norm.get(true);
    a.affine = {};
    a.x = x.as<std::uint8_t>() + size_of(dtype);
    GuardedBuffer y(device(), count, dtype);
    BANTAM_KERNEL(exec(), batch_norm_add, ActivationFunction{Activation::relu}, s, dtype, a, b.get(false), y.data(),
                  nullptr);
    const Fused expected(device(), {Activation::relu}, s, dtype, aligned, right, false);
    EXPECT_EQ(y.download_bytes(), expected.y.download_bytes());
  }
}

TEST(BatchNormAddCpuTest, SameBitsForAllThreads) {
  for (const BatchNormShape s : {BatchNormShape{9001, 13}, BatchNormShape{3000, 64}}) {
    const Values a(s, DType::float32, 1), b(s, DType::float32, 2);
    expect_same_bits_for_all_threads([&](KernelDevice& device) {
      const Fused r(device, {Activation::relu}, s, DType::float32, a, b, true);
      std::vector<std::uint8_t> all = r.y.download_bytes();
      const std::vector<std::uint8_t> mask = r.mask.download_bytes();
      all.insert(all.end(), mask.begin(), mask.end());
      return all;
    });
  }
}

}  // namespace
}  // namespace bantam::kernels::batch_norm_add_test
