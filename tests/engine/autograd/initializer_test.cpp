// Initial values: their bounds and variance, and that they are a pure function of seed, name and shape.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/parameters.h"

namespace bantam::initializer_test {
namespace {

constexpr Fans kFans{.in = 300, .out = 200};
constexpr std::int64_t kCount = 60000;

std::vector<float> fill(const Initializer& initializer, std::uint64_t seed = 7, std::int64_t count = kCount) {
  std::vector<float> values(static_cast<std::size_t>(count), -99.0f);
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  initializer.fill(values, {count}, random);
  return values;
}

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double variance_of(const std::vector<float>& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const float v : values) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(values.size());
}

struct Expected {
  const char* name;
  double variance;
  double bound;  // 0: none
};

/// A sample's mean deviates by √(variance/n), its variance by variance·√((kurtosis - 1)/n): at most √2 of the normal.
/// Five of those, which one in a million seeds misses; the seed is fixed.
TEST(InitializerTest, MomentsAreThoseOfTheirPapers) {
  const double in = kFans.in, both = kFans.in + kFans.out;
  const Expected all[] = {{"glorot_uniform", 2 / both, std::sqrt(6 / both)},
                          {"glorot_normal", 2 / both, 0},
                          {"he_uniform", 2 / in, std::sqrt(6 / in)},
                          {"he_normal", 2 / in, 0},
                          {"lecun_normal", 1 / in, 0},
                          {"fan_in_uniform", 1 / in / 3, 1 / std::sqrt(in)},
                          {"unit_uniform", 1, std::sqrt(3.0)}};
  for (const Expected& expected : all) {
    const std::vector<float> values = fill(make_initializer(expected.name, kFans));
    EXPECT_NEAR(mean_of(values), 0, 5 * std::sqrt(expected.variance / kCount)) << expected.name;
    EXPECT_NEAR(variance_of(values), expected.variance, 5 * expected.variance * std::sqrt(2.0 / kCount))
        << expected.name;
    const auto [low, high] = std::ranges::minmax(values);
    if (expected.bound == 0) {
      EXPECT_GT(high, 3 * std::sqrt(expected.variance)) << expected.name << ": a normal has tails";
      continue;
    }
    EXPECT_GE(low, static_cast<float>(-expected.bound)) << expected.name;
    EXPECT_LE(high, static_cast<float>(expected.bound)) << expected.name;
    EXPECT_GT(high, 0.99 * expected.bound) << expected.name;
  }
}

TEST(InitializerTest, ATruncatedNormalEndsAtTwoDeviations) {
  const std::vector<float> values = fill(truncated_normal(0.5f));
  const auto [low, high] = std::ranges::minmax(values);
  EXPECT_GE(low, -1.0f);
  EXPECT_LE(high, 1.0f);
  EXPECT_GT(high, 0.95f);
  // Of a standard normal cut at ±2: 1 - 4φ(2)/(2Φ(2) - 1) = 0.77374.
  EXPECT_NEAR(variance_of(values), 0.25 * 0.77374, 5 * 0.2 * std::sqrt(2.0 / kCount));
}

/// Values of this shape, and whether each is as fan_in_uniform says.
std::vector<float> dirac_of(const Shape& shape) {
  const auto filled = [&](const char* name) {
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    PhiloxSequence random(philox_key(7, RandomPurpose::test));
    make_initializer(name, kFans).fill(values, shape, random);
    return values;
  };
  std::vector<float> values = filled("dirac");
  const std::vector<float> uniform = filled("fan_in_uniform");
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] == uniform[i]) values[i] = -7;
  return values;
}

TEST(InitializerTest, DiracPassesInputsOn) {
  // Three filters of 1x2 over two channels: the middle is column 1. The third filter has no channel.
  EXPECT_EQ(dirac_of({3, 1, 2, 2}), (std::vector<float>{0, 0, 1, 0, 0, 0, 0, 1, -7, -7, -7, -7}));
  // One filter, 3x3 over two channels.
  std::vector<float> one(18);
  one[8] = 1;
  EXPECT_EQ(dirac_of({1, 3, 3, 2}), one);
  EXPECT_EQ(dirac_of({3, 2}), (std::vector<float>{1, 0, 0, 1, -7, -7}));
  EXPECT_EQ(dirac_of({1, 3, 2}), (std::vector<float>{0, 0, 1, 1, 0, 0})) << "depthwise: every channel";
}

TEST(InitializerTest, ConstantsFillEverything) {
  EXPECT_EQ(fill(zeros(), 1, 5), std::vector<float>(5, 0.0f));
  EXPECT_EQ(fill(ones(), 1, 5), std::vector<float>(5, 1.0f));
  EXPECT_EQ(fill(constant(-2.5f), 1, 5), std::vector<float>(5, -2.5f));
}

TEST(InitializerTest, ValuesAreAFunctionOfTheirKeyAlone) {
  for (const std::string& name : initializer_names()) {
    const Initializer initializer = make_initializer(name, kFans);
    EXPECT_EQ(fill(initializer, 7, 1000), fill(make_initializer(name, kFans), 7, 1000)) << name;
    const std::vector<float> longer = fill(initializer, 7, 1001);
    EXPECT_TRUE(std::ranges::equal(fill(initializer, 7, 1000), std::span(longer).first(1000)))
        << name << ": drawn one after another";
    if (name == "zeros" || name == "ones") continue;
    EXPECT_NE(fill(initializer, 7, 1000), fill(initializer, 8, 1000)) << name;
  }
}

/// A generator's words by hand: the first two are the first two uniforms of Box and Muller, or of a uniform.
TEST(InitializerTest, GoldenValues) {
  PhiloxSequence words(philox_key(7, RandomPurpose::test));
  const double u = words.uniform(), v = words.uniform(), pi = std::acos(-1.0);
  const double bound = std::sqrt(6.0 / 500), radius = std::sqrt(-2 * std::log(1 - u));
  const std::vector<float> uniform = fill(glorot_uniform(kFans), 7, 2), normal = fill(he_normal(kFans), 7, 2);
  EXPECT_NEAR(uniform[0], bound * (2 * u - 1), 1e-7);
  EXPECT_NEAR(uniform[1], bound * (2 * v - 1), 1e-7);
  EXPECT_NEAR(normal[0], std::sqrt(2.0 / 300) * radius * std::cos(2 * pi * v), 1e-7);
  EXPECT_NEAR(normal[1], std::sqrt(2.0 / 300) * radius * std::sin(2 * pi * v), 1e-7);
}

TEST(InitializerTest, AnUnknownNameIsToldFromThoseThereAre) {
  try {
    (void)make_initializer("glorot", kFans);
    FAIL() << "there is no glorot";
  } catch (const ConfigError& error) {
    EXPECT_NE(
        std::string(error.what()).find("unknown initializer 'glorot'; expected one of zeros, ones, glorot_uniform"),
        std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace bantam::initializer_test
