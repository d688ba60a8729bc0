// Philox4x32-10: the known answers of its authors' distribution, and the host helpers drawn from it.
#include "bantam/base/philox.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace bantam::philox_test {
namespace {

void expect_words(const PhiloxWords& actual, const PhiloxWords& expected) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(actual.v[i], expected.v[i]) << "word " << i;
}

// Random123's kat_vectors, lines "philox4x32 10".
TEST(Philox, KnownAnswers) {
  expect_words(philox({0, 0}, {{0, 0, 0, 0}}), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect_words(philox({0xffffffff, 0xffffffff}, {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}),
               {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect_words(philox({0xa4093822, 0x299f31d0}, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}),
               {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(Philox, IsConstexpr) {
  static_assert(philox({0, 0}, {{0, 0, 0, 0}}).v[0] == 0x6627e8d5);
  static_assert(uniform01(0xffffffffu) < 1.0f);
}

TEST(Philox, Uniform01IsTheTop24BitsExactly) {
  EXPECT_EQ(uniform01(0), 0.0f);
  EXPECT_EQ(uniform01(0xffu), 0.0f);
  EXPECT_EQ(uniform01(0x100u), 1.0f / 16777216.0f);
  EXPECT_EQ(uniform01(0x80000000u), 0.5f);
  EXPECT_EQ(uniform01(0xffffffffu), 16777215.0f / 16777216.0f);
}

TEST(Philox, KeysDifferInSeedPurposeAndWhat) {
  std::set<std::uint64_t> seen;
  for (const std::uint64_t seed : {0ull, 1ull, 42ull, ~0ull}) {
    for (const RandomPurpose purpose : {RandomPurpose::initializer, RandomPurpose::shuffle, RandomPurpose::dropout}) {
      for (const std::uint64_t what : {0ull, 1ull, 2ull, 1ull << 56}) {
        const PhiloxKey key = philox_key(seed, purpose, what);
        seen.insert((static_cast<std::uint64_t>(key.k1) << 32) | key.k0);
      }
    }
  }
  EXPECT_EQ(seen.size(), 4u * 3u * 4u);
}

TEST(PhiloxSequence, IsTheBlocksInOrderAndStartsAnywhere) {
  const PhiloxKey key = philox_key(3, RandomPurpose::test);
  PhiloxSequence all(key), later(key, 2);
  std::vector<std::uint32_t> words;
  for (int i = 0; i < 12; ++i) words.push_back(all.next());
  for (std::uint32_t block = 0; block < 3; ++block) {
    const PhiloxWords expected = philox(key, {{block, 0, 0, 0}});
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(words[block * 4 + i], expected.v[i]);
  }
  for (std::size_t i = 8; i < 12; ++i) EXPECT_EQ(later.next(), words[i]);
}

// 60,000 draws over 6 values: each count is binomial with mean 10,000 and deviation √(60000·1/6·5/6) = 91; 5
// deviations.
TEST(PhiloxSequence, BelowIsUniformAndInRange) {
  PhiloxSequence random(philox_key(11, RandomPurpose::test));
  std::vector<int> counts(6);
  for (int i = 0; i < 60000; ++i) ++counts.at(random.below(6));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 460);
  EXPECT_EQ(random.below(1), 0u);
}

// The mean of n uniforms in [-2, 4) has deviation 6/√(12 n) = 0.0055 for n = 100,000; 5 deviations.
TEST(PhiloxSequence, UniformStaysInItsInterval) {
  PhiloxSequence random(philox_key(12, RandomPurpose::test));
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const float u = random.uniform(-2.0f, 4.0f);
    ASSERT_GE(u, -2.0f);
    ASSERT_LE(u, 4.0f);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 1.0, 0.028);
}

}  // namespace
}  // namespace bantam::philox_test
