// float16 and bfloat16: every value of both, and every rounding boundary between two neighbours.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "bantam/base/dtype.h"

namespace bantam::half_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A binary16 or bfloat16 decoded by the definition, apart from the code under test.
double decode(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const std::uint32_t mantissa = bits & ((1u << mantissa_bits) - 1u);
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1u));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000u) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? std::nan("") : sign * kInfinity;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1u << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/// The two formats with one interface.
struct Float16Format {
  static constexpr int kExponentBits = 5, kMantissaBits = 10;
  static float widen(std::uint16_t bits) { return half_bits_to_float(bits); }
  static std::uint16_t narrow(float value) { return float_to_half_bits(value); }
};
struct BFloat16Format {
  static constexpr int kExponentBits = 8, kMantissaBits = 7;
  static float widen(std::uint16_t bits) {
    BFloat16 value;
    value.bits = bits;
    return value;
  }
  static std::uint16_t narrow(float value) { return BFloat16(value).bits; }
};

template <class Format>
class HalfFormats : public ::testing::Test {};
using Formats = ::testing::Types<Float16Format, BFloat16Format>;
TYPED_TEST_SUITE(HalfFormats, Formats);

TYPED_TEST(HalfFormats, EveryValueWidensExactlyAndComesBack) {
  int nans = 0;
  for (std::uint32_t b = 0; b <= 0xffffu; ++b) {
    const auto bits = static_cast<std::uint16_t>(b);
    const double expected = decode(b, TypeParam::kExponentBits, TypeParam::kMantissaBits);
    const float wide = TypeParam::widen(bits);
    if (std::isnan(expected)) {
      ++nans;
      ASSERT_TRUE(std::isnan(wide)) << b;
      ASSERT_TRUE(std::isnan(TypeParam::widen(TypeParam::narrow(wide)))) << b;
      ASSERT_EQ(TypeParam::narrow(wide) & 0x8000u, b & 0x8000u) << b;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), expected) << b;
    ASSERT_EQ(std::signbit(wide), (b & 0x8000u) != 0) << b;
    ASSERT_EQ(TypeParam::narrow(wide), bits) << b;
  }
  EXPECT_EQ(nans, 2 * ((1 << TypeParam::kMantissaBits) - 1));
}

// Between neighbours b and b + 1 (the last one infinity) lies their middle, exact in float32. It goes to the even one,
// the floats beside it to the nearer one. This covers normal and subnormal numbers, the smallest, and overflow.
TYPED_TEST(HalfFormats, EveryBoundaryRoundsToNearestEven) {
  const std::uint32_t infinity = ((1u << TypeParam::kExponentBits) - 1u) << TypeParam::kMantissaBits;
  for (std::uint32_t b = 0; b < infinity; ++b) {
    const double low = decode(b, TypeParam::kExponentBits, TypeParam::kMantissaBits);
    const double below = b == 0 ? -decode(1, TypeParam::kExponentBits, TypeParam::kMantissaBits)
                                : decode(b - 1, TypeParam::kExponentBits, TypeParam::kMantissaBits);
    const double high =
        b + 1 == infinity ? 2 * low - below : decode(b + 1, TypeParam::kExponentBits, TypeParam::kMantissaBits);
    const float middle = static_cast<float>((low + high) / 2);
    const std::uint32_t even = b % 2 == 0 ? b : b + 1;
    ASSERT_EQ(TypeParam::narrow(middle), even) << b;
    ASSERT_EQ(TypeParam::narrow(std::nextafter(middle, kInfinity)), b + 1) << b;
    ASSERT_EQ(TypeParam::narrow(std::nextafter(middle, 0.0f)), b) << b;
    ASSERT_EQ(TypeParam::narrow(-middle), even | 0x8000u) << b;
  }
}

TYPED_TEST(HalfFormats, FarTooLargeGivesInfinityAndNanStaysQuiet) {
  const std::uint32_t infinity = ((1u << TypeParam::kExponentBits) - 1u) << TypeParam::kMantissaBits;
  EXPECT_EQ(TypeParam::narrow(kInfinity), infinity);
  EXPECT_EQ(TypeParam::narrow(-kInfinity), infinity | 0x8000u);
  EXPECT_EQ(TypeParam::narrow(std::numeric_limits<float>::max()), infinity);
  // A NaN whose payload lies only in the bits that are cut off must not become infinity.
  const std::uint16_t nan = TypeParam::narrow(std::bit_cast<float>(0x7f800001u));
  EXPECT_EQ(nan & infinity, infinity);
  EXPECT_NE(nan & (1u << (TypeParam::kMantissaBits - 1)), 0u) << "the quiet bit";
}

TYPED_TEST(HalfFormats, TooSmallGivesSignedZero) {
  EXPECT_EQ(TypeParam::narrow(std::numeric_limits<float>::denorm_min()), 0u);
  EXPECT_EQ(TypeParam::narrow(-std::numeric_limits<float>::denorm_min()), 0x8000u);
  EXPECT_EQ(TypeParam::narrow(-0.0f), 0x8000u);
}

TEST(Half, ValuesKnownByHeart) {
  EXPECT_EQ(Half(1.0f).bits, 0x3c00);
  EXPECT_EQ(Half(-2.0f).bits, 0xc000);
  EXPECT_EQ(Half(65504.0f).bits, 0x7bff);
  EXPECT_EQ(Half(65519.996f).bits, 0x7bff);
  EXPECT_EQ(Half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(static_cast<float>(Half(0.1f)), 0.0999755859375f);
}

TEST(BFloat16, ValuesKnownByHeart) {
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16(-2.0f).bits, 0xc000);
  EXPECT_EQ(static_cast<float>(BFloat16(0.1f)), 0.10009765625f);
}

}  // namespace
}  // namespace bantam::half_test
