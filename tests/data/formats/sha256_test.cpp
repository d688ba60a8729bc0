// Known answers of SHA-256, and chunks that add up to the whole.
#include "bantam/data/formats/sha256.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bantam {
namespace {

// FIPS 180-4's example messages (NIST, "Examples with intermediate values").
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesOfAnyLengthAddUp) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text.push_back(static_cast<char>(i * 31 % 256));
  const std::string whole = sha256_of(text);
  for (const std::size_t chunk : {1u, 7u, 55u, 56u, 63u, 64u, 65u, 129u}) {
    Sha256 sum;
    for (std::size_t at = 0; at < text.size(); at += chunk) {
      const std::string part = text.substr(at, chunk);
      sum.update({reinterpret_cast<const std::uint8_t*>(part.data()), part.size()});
    }
    EXPECT_EQ(sum.finish(), whole) << "chunks of " << chunk;
  }
}

TEST(Sha256, EveryLengthAroundABlockIsPaddedApart) {
  std::vector<std::string> sums;
  for (std::size_t length = 50; length < 70; ++length) sums.push_back(sha256_of(std::string(length, '\0')));
  for (std::size_t i = 1; i < sums.size(); ++i) EXPECT_NE(sums[i], sums[i - 1]);
}

}  // namespace
}  // namespace bantam
