// Add, scale, cast and fill: by hand, against the reference, casts bit for bit, unaligned addresses, aliases.
#include "bantam/kernels/elementwise/elementwise.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "bantam/kernels/elementwise/elementwise_reference.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::elementwise_test {
namespace {

class ElementwiseTest : public DeviceTest {
 protected:
  std::vector<float> cast(const std::vector<float>& x, DType from, DType to) {
    const auto count = static_cast<std::int64_t>(x.size());
    const DeviceBuffer in(device(), x, from), out(device(), count, to);
    BANTAM_KERNEL(exec(), cast, count, from, in.data(), to, out.data());
    return out.download();
  }
};

TEST_P(ElementwiseTest, ByHand) {
  for (const DType dtype : kernel_dtypes()) {
    const DeviceBuffer a(device(), {1, -2, 0.5f}, dtype), b(device(), {4, 5, -6}, dtype), y(device(), 3, dtype);
    BANTAM_KERNEL(exec(), add, 3, dtype, a.data(), b.data(), y.data());
    EXPECT_EQ(y.download(), (std::vector<float>{5, 3, -5.5f}));
    BANTAM_KERNEL(exec(), scale, 3, dtype, -0.5f, b.data(), y.data());
    EXPECT_EQ(y.download(), (std::vector<float>{-2, -2.5f, 3}));
  }
}

// One float32 operation and one rounding to the type: both at most half a unit.
TEST_P(ElementwiseTest, AddAndScaleAreTheReference) {
  for (const DType dtype : kernel_dtypes()) {
    for (const std::int64_t count : odd_counts()) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(count));
      const double tolerance = unit_roundoff(dtype) + unit_roundoff(DType::float32);
      const std::vector<float> a = random_values(count, 1, dtype), b = random_values(count, 2, dtype, -3, 3);
      const DeviceBuffer da(device(), a, dtype), db(device(), b, dtype), y(device(), count, dtype);
      std::vector<double> expected(a.size());
      BANTAM_KERNEL(exec(), add, count, dtype, da.data(), db.data(), y.data());
      kernels::reference::add(count, to_double(a).data(), to_double(b).data(), expected.data());
      EXPECT_LE(relative_error(y.download(), expected), tolerance);
      BANTAM_KERNEL(exec(), scale, count, dtype, 1.7f, da.data(), y.data());
      kernels::reference::scale(count, double{1.7f}, to_double(a).data(), expected.data());
      EXPECT_LE(relative_error(y.download(), expected), tolerance);
    }
  }
}

TEST_P(ElementwiseTest, CastsRoundToNearestEvenBitForBit) {
  for (const DType from : {DType::float32, DType::float16, DType::bfloat16, DType::uint8}) {
    for (const DType to : kernel_dtypes()) {
      for (const std::int64_t count : odd_counts()) {
        SCOPED_TRACE(std::string(to_string(from)) + " to " + std::string(to_string(to)) + " " + std::to_string(count));
        std::vector<float> x = random_values(count, 3, from, from == DType::uint8 ? 0.0f : -300.0f, 255.99f);
        if (from == DType::uint8) {
          for (float& v : x) v = std::floor(v);
        }
        std::vector<float> expected;
        for (const float v : x) expected.push_back(rounded(v, to));
        ASSERT_EQ(bits_of(cast(x, from, to)), bits_of(expected));
      }
    }
  }
}

TEST_P(ElementwiseTest, CastsOfEdges) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // Overflow, ties, subnormals of float16, and what rounds to zero.
  const std::vector<float> x = {65519.0f, 65520.0f, -1e6f,  kInfinity, -kInfinity,  1.00048828125f, 1.00146484375f,
                                6e-8f,    2.9e-8f,  -1e-9f, 3.4e38f,   1.00390625f, 1.01171875f};
  for (const DType to : kernel_dtypes()) {
    std::vector<float> expected;
    for (const float v : x) expected.push_back(rounded(v, to));
    EXPECT_EQ(bits_of(cast(x, DType::float32, to)), bits_of(expected)) << to_string(to);
    EXPECT_TRUE(std::isnan(cast({std::numeric_limits<float>::quiet_NaN()}, DType::float32, to)[0]));
  }
  EXPECT_EQ(cast(x, DType::float32, DType::float16)[0], 65504.0f);
  EXPECT_EQ(cast(x, DType::float32, DType::float16)[1], kInfinity);
}

TEST_P(ElementwiseTest, FillWritesEveryElementAndNoMore) {
  for (const DType dtype : kernel_dtypes()) {
    for (const std::int64_t count : odd_counts()) {
      const DeviceBuffer y(device(), count + 9, dtype);
      const std::vector<std::uint8_t> before = y.download_bytes();
      BANTAM_KERNEL(exec(), fill, count, dtype, 0.3f, y.data());
      std::vector<float> values = y.download();
      values.resize(static_cast<std::size_t>(count));
      EXPECT_EQ(values, std::vector<float>(values.size(), rounded(0.3f, dtype)));
      const std::vector<std::uint8_t> after = y.download_bytes();
      const auto end = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(count) * size_of(dtype));
      EXPECT_TRUE(std::equal(after.begin() + end, after.end(), before.begin() + end)) << count;
    }
  }
}

// One element past an aligned address: no 16-byte access is possible.
TEST_P(ElementwiseTest, UnalignedAddressesWork) {
  const std::int64_t count = 1001;
  for (const DType dtype : kernel_dtypes()) {
    const std::vector<float> a = random_values(count + 1, 4, dtype);
    const DeviceBuffer in(device(), a, dtype), out(device(), std::vector<float>(1003, 5.0f), dtype);
    const auto step = size_of(dtype);
    BANTAM_KERNEL(exec(), scale, count, dtype, 2.0f, in.as<std::uint8_t>() + step, out.as<std::uint8_t>() + step);
    const std::vector<float> y = out.download();
    EXPECT_EQ(y[0], 5.0f);
    EXPECT_EQ(y[1002], 5.0f);
    for (std::size_t i = 1; i <= 1001; ++i) ASSERT_EQ(y[i], 2 * a[i]) << i;
    BANTAM_KERNEL(exec(), fill, count, dtype, 7.0f, out.as<std::uint8_t>() + step);
    EXPECT_EQ(out.download()[0], 5.0f);
    EXPECT_EQ(out.download()[1001], 7.0f);
    EXPECT_EQ(out.download()[1002], 5.0f);
  }
}

TEST_P(ElementwiseTest, OutputsMayAliasInputs) {
  const std::int64_t count = 1003;
  for (const DType dtype : kernel_dtypes()) {
    const std::vector<float> x = random_values(count, 5, dtype), other = random_values(count, 6, dtype);
    std::vector<float> sum, twice;
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum.push_back(rounded(x[i] + other[i], dtype));
      twice.push_back(2 * x[i]);
    }
    DeviceBuffer a(device(), x, dtype), b(device(), other, dtype), c(device(), x, dtype);
    BANTAM_KERNEL(exec(), add, count, dtype, a.data(), b.data(), b.data());
    EXPECT_EQ(b.download(), sum);
    b.upload(other);
    BANTAM_KERNEL(exec(), add, count, dtype, a.data(), b.data(), a.data());
    EXPECT_EQ(a.download(), sum);
    BANTAM_KERNEL(exec(), scale, count, dtype, 2.0f, c.data(), c.data());
    EXPECT_EQ(c.download(), twice);
  }
}

TEST_P(ElementwiseTest, NothingHappensForNoElements) {
  const DeviceBuffer x(device(), std::vector<float>{3}, DType::float32);
  BANTAM_KERNEL(exec(), fill, 0, DType::float32, 1.0f, x.data());
  BANTAM_KERNEL(exec(), scale, 0, DType::float32, 2.0f, x.data(), x.data());
  BANTAM_KERNEL(exec(), add, 0, DType::float32, x.data(), x.data(), x.data());
  BANTAM_KERNEL(exec(), cast, 0, DType::float32, x.data(), DType::float32, x.data());
  EXPECT_EQ(x.download()[0], 3.0f);
}

TEST_P(ElementwiseTest, OtherTypesAreRefused) {
  const DeviceBuffer x(device(), std::vector<float>{3}, DType::int32);
  EXPECT_THROW(BANTAM_KERNEL(exec(), scale, 1, DType::int32, 2.0f, x.data(), x.data()), DTypeError);
}

INSTANTIATE_TEST_SUITE_P(Devices, ElementwiseTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST(ElementwiseCpu, BitsDoNotDependOnThreads) {
  const std::int64_t count = 100003;
  const std::vector<float> a = random_values(count, 7), b = random_values(count, 8);
  std::vector<std::vector<std::uint8_t>> results;
  for (const int threads : {1, 2, 3}) {
    KernelDevice device(Device::cpu(), threads);
    const DeviceBuffer da(device, a, DType::float32), db(device, b, DType::float32), y(device, count, DType::float16);
    kernels::cpu::add(device.exec(), count, DType::float32, da.data(), db.data(), db.data());
    kernels::cpu::cast(device.exec(), count, DType::float32, db.data(), DType::float16, y.data());
    results.push_back(y.download_bytes());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace bantam::testing::elementwise_test
