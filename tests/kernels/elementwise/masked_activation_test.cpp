// Masked activations: by hand, every device against the reference, bits at every length, gradients from bits, aliasing.
#include "bantam/kernels/elementwise/masked_activation.h"

#include <limits>

#include "bantam/kernels/elementwise/masked_activation_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::masked_activation_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class MaskedActivationTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, MaskedActivationTest, ::testing::ValuesIn(test_devices()), device_test_name);

constexpr ActivationFunction kFunctions[] = {
    {Activation::none}, {Activation::relu}, {Activation::relu6}, {Activation::leaky_relu, 0.25f}};

/// Forward on a device; an empty b is none.
struct Forward {
  Forward(KernelDevice& device, ActivationFunction f, DType dtype, const std::vector<float>& a,
          const std::vector<float>& b)
      : count(static_cast<std::int64_t>(a.size())),
        y(device, count, dtype),
        mask(device, activation_mask_bytes(count)) {
    const DeviceBuffer left(device, a, dtype), right(device, b.empty() ? a : b, dtype);
    BANTAM_KERNEL(device.exec(), masked_activation_forward, f, count, dtype, left.data(),
                  b.empty() ? nullptr : right.data(), y.data(), mask.as<std::uint8_t>());
    GuardedBuffer alone(device, count, dtype);
    BANTAM_KERNEL(device.exec(), masked_activation_forward, f, count, dtype, left.data(),
                  b.empty() ? nullptr : right.data(), alone.data(), nullptr);
    // Over an operand: the same.
    BANTAM_KERNEL(device.exec(), masked_activation_forward, f, count, dtype, left.data(),
                  b.empty() ? nullptr : right.data(), right.data(), nullptr);
    device.synchronize();
    EXPECT_EQ(alone.download_bytes(), y.download_bytes());
    EXPECT_EQ(right.download_bytes(), y.download_bytes());
  }
  std::vector<bool> bits() const {
    std::vector<bool> all;
    const std::vector<std::uint8_t> bytes = mask.download_bytes();
    for (std::size_t i = 0; i < bytes.size() * 8; ++i) all.push_back((bytes[i / 8] >> (i % 8) & 1) != 0);
    return all;
  }
  std::int64_t count;
  GuardedBuffer y;
  GuardedBytes mask;
};

TEST_P(MaskedActivationTest, ByHand) {
  const std::vector<float> a = {-3, -1, 0, 2, 5, -2, 1, 4, 1}, b = {1, 1, 0, 1, 2, 3, -1, 2, 1};  // -2 0 0 3 7 1 0 6 2
  const auto byte_of = [&](Activation kind) {
    const Forward r(device(), {kind, 0.5f}, DType::float32, a, b);
    return r.mask.download_bytes();
  };
  EXPECT_EQ(byte_of(Activation::relu), (std::vector<std::uint8_t>{0b10111000, 1}));
  EXPECT_EQ(byte_of(Activation::relu6), (std::vector<std::uint8_t>{0b00101000, 1}));
  EXPECT_EQ(byte_of(Activation::leaky_relu), (std::vector<std::uint8_t>{0b10111000, 1}));
  EXPECT_EQ(Forward(device(), {Activation::relu6}, DType::float32, a, b).y.download(),
            (std::vector<float>{0, 0, 0, 3, 6, 1, 0, 6, 2}));
  EXPECT_EQ(Forward(device(), {Activation::leaky_relu, 0.5f}, DType::float32, a, {}).y.download(),
            (std::vector<float>{-1.5f, -0.5f, 0, 2, 5, -1, 1, 4, 1}));
}

TEST_P(MaskedActivationTest, IsTheReferenceAndSoIsTheGradient) {
  for (const ActivationFunction f : kFunctions) {
    for (const DType dtype : kFloatingTypes) {
      for (const std::int64_t count : odd_counts()) {
        SCOPED_TRACE(std::string(to_string(f.kind)) + " " + std::string(to_string(dtype)) + " " +
                     std::to_string(count));
        const std::vector<float> a = random_values(count, 1, dtype, -4, 4), b = random_values(count, 2, dtype, -3, 5);
        const Forward r(device(), f, dtype, a, b);
        const auto expected = reference::masked_activation_forward(f, as_double(a), as_double(b));
        EXPECT_LE(relative_error(r.y.download(), expected.y), unit_roundoff(dtype) + unit_roundoff(DType::float32));
        std::vector<bool> bits = r.bits();
        for (std::size_t i = expected.rises.size(); i < bits.size(); ++i) EXPECT_FALSE(bits[i]);
        bits.resize(expected.rises.size());
        if (f.kind != Activation::none) {  // of which both slopes are 1
          EXPECT_EQ(bits, expected.rises);
        }

        const std::vector<float> dy = random_values(count, 3, dtype);
        std::vector<float> dx;
        const float below = PiecewiseLinear::of(f).below;
        for (std::size_t i = 0; i < dy.size(); ++i)
          dx.push_back(rounded(dy[i] * (expected.rises[i] ? 1.0f : below), dtype));
        const DeviceBuffer up(device(), dy, dtype);
        GuardedBuffer down(device(), count, dtype);
        BANTAM_KERNEL(exec(), masked_activation_grad, f, count, dtype, r.mask.as<std::uint8_t>(), up.data(),
                      down.data());
        EXPECT_EQ(down.download(), dx);
        BANTAM_KERNEL(exec(), masked_activation_grad, f, count, dtype, r.mask.as<std::uint8_t>(), up.data(), up.data());
        EXPECT_EQ(up.download(), dx);
      }
    }
  }
}

TEST_P(MaskedActivationTest, NanStaysAndInfinitiesAreClamped) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {std::numeric_limits<float>::quiet_NaN(), -kInfinity, kInfinity, -0.0f};
  for (const ActivationFunction f : kFunctions) {
    const Forward r(device(), f, DType::float32, x, {});
    const std::vector<float> y = r.y.download();
    EXPECT_TRUE(std::isnan(y[0]));
    const bool clamps = f.kind == Activation::relu || f.kind == Activation::relu6;
    EXPECT_EQ(y[1], clamps ? 0.0f : -kInfinity);
    EXPECT_EQ(y[2], f.kind == Activation::relu6 ? 6.0f : kInfinity);
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_EQ(r.bits()[2], f.kind != Activation::relu6);  // f' at infinity
  }
}

TEST_P(MaskedActivationTest, UnalignedAddressesHaveTheSameBits) {
  const std::int64_t count = 1003;
  for (const DType dtype : kFloatingTypes) {
    const std::vector<float> x = random_values(count + 1, 5, dtype);
    const DeviceBuffer in(device(), x, dtype);
    GuardedBuffer out(device(), count, dtype);
    GuardedBytes mask(device(), activation_mask_bytes(count));
    BANTAM_KERNEL(exec(), masked_activation_forward, ActivationFunction{Activation::relu}, count, dtype,
                  in.as<std::uint8_t>() + size_of(dtype), nullptr, out.data(), mask.as<std::uint8_t>());
    const Forward aligned(device(), {Activation::relu}, dtype, {x.begin() + 1, x.end()}, {});
    EXPECT_EQ(out.download_bytes(), aligned.y.download_bytes());
    EXPECT_EQ(mask.download_bytes(), aligned.mask.download_bytes());
  }
}

TEST(MaskedActivationCpuTest, SameBitsForAllThreads) {
  const std::vector<float> a = random_values(200003, 6), b = random_values(200003, 7);
  expect_same_bits_for_all_threads([&](KernelDevice& device) {
    const Forward r(device, {Activation::relu}, DType::float32, a, b);
    std::vector<std::uint8_t> all = r.y.download_bytes();
    const std::vector<std::uint8_t> mask = r.mask.download_bytes();
    all.insert(all.end(), mask.begin(), mask.end());
    return all;
  });
}

}  // namespace
}  // namespace bantam::kernels::masked_activation_test
