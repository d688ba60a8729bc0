// Known answers of SHA-256 and HMAC, and chunks that add up to the whole.
#include "bantam/base/sha256.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bantam::sha256_test {
namespace {

// FIPS 180-4's example messages (NIST, "Examples with intermediate values").
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

std::string hexadecimal(const Sha256Bytes& bytes) {
  std::string digits;
  for (const std::uint8_t byte : bytes) {
    digits += "0123456789abcdef"[byte / 16];
    digits += "0123456789abcdef"[byte % 16];
  }
  return digits;
}

// RFC 4231, test cases 1, 2, 3 and 6 (a key longer than a block).
TEST(Sha256, KnownCodesOfKeyedMessages) {
  EXPECT_EQ(hexadecimal(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hexadecimal(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hexadecimal(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(
      hexadecimal(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
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

TEST(Sha256, TheProcessorsInstructionsChangeNothing) {
  std::string text;
  for (int i = 0; i < 700; ++i) text.push_back(static_cast<char>(i * 131 % 251));
  for (std::size_t length = 0; length < text.size(); length += 13) {
    Sha256 with, without(false);
    with.update(std::string_view(text).substr(0, length));
    without.update(std::string_view(text).substr(0, length));
    EXPECT_EQ(with.finish(), without.finish()) << length;
  }
}

TEST(Sha256, ARunningSumGoesOn) {
  RunningSum sum;
  EXPECT_EQ(sum.finished(), (FileSum{.bytes = 0, .sha256 = sha256_of("")}));
  sum.add("ab");
  EXPECT_EQ(sum.finished(), (FileSum{.bytes = 2, .sha256 = sha256_of("ab")}));
  sum.add("c");
  EXPECT_EQ(sum.finished(), (FileSum{.bytes = 3, .sha256 = sha256_of("abc")}));
}

TEST(Sha256, EveryLengthAroundABlockIsPaddedApart) {
  std::vector<std::string> sums;
  for (std::size_t length = 50; length < 70; ++length) sums.push_back(sha256_of(std::string(length, '\0')));
  for (std::size_t i = 1; i < sums.size(); ++i) EXPECT_NE(sums[i], sums[i - 1]);
}

}  // namespace
}  // namespace bantam::sha256_test
