// The checksum: hand values, and every single change found.
#include "bantam/base/checksum.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bantam::checksum_test {
namespace {

std::uint64_t sum_of(std::string_view text) {
  Checksum sum;
  sum.add(text);
  return sum.value();
}

/// The definition, word by word.
std::uint64_t next(std::uint64_t sum, std::uint64_t word) {
  word = (word ^ (word >> 30)) * 13787848793156543929u;
  word = (word ^ (word >> 27)) * 10723151780598845931u;
  word ^= word >> 31;
  sum = (sum ^ word) * 1099511628211u;
  return sum ^ (sum >> 32);
}

TEST(Checksum, IsAsDefined) {
  const std::uint64_t basis = 14695981039346656037u;
  EXPECT_EQ(Checksum().value(), basis);
  EXPECT_EQ(sum_of(""), next(basis, 0));
  EXPECT_EQ(sum_of("a"), next(next(basis, 1), 'a'));
  const std::uint64_t word = 0x3736353433323130;  // "01234567"
  EXPECT_EQ(sum_of("0123456789"), next(next(next(basis, 10), word), 0x3938));
  EXPECT_EQ(Checksum().digits(), "cbf29ce484222325");
}

TEST(Checksum, FindsEveryBitAndEverySwap) {
  const std::string text = "a text of some words, and a few bytes";
  std::vector<std::uint64_t> sums = {sum_of(text)};
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string other = text;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << (bit % 8)));
    sums.push_back(sum_of(other));
  }
  sums.push_back(sum_of(text.substr(8, 8) + text.substr(0, 8) + text.substr(16)));
  sums.push_back(sum_of(text + '\0'));
  // The high bits of two words: a plain product would let them cancel.
  std::string both = text;
  for (const std::size_t byte : {7u, 15u}) both[byte] = static_cast<char>(both[byte] ^ 0x80);
  sums.push_back(sum_of(both));
  std::ranges::sort(sums);
  EXPECT_EQ(std::ranges::adjacent_find(sums), sums.end());
}

TEST(Checksum, PiecesCount) {
  Checksum one, two;
  one.add("ab");
  one.add("c");
  two.add("a");
  two.add("bc");
  EXPECT_NE(one.value(), two.value());
  EXPECT_NE(one.value(), sum_of("abc"));
}

}  // namespace
}  // namespace bantam::checksum_test
