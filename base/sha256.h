// SHA-256 of bytes that arrive in chunks (FIPS 180-4, sections 4.1.2, 5.1.1 and 6.2), and HMAC (FIPS 198-1) with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bantam {

/// The 256 bits of a sum.
using Sha256Bytes = std::array<std::uint8_t, 32>;

/// One running sum. Not thread-safe; different sums are independent.
class Sha256 {
 public:
  void update(std::span<const std::uint8_t> bytes);
  /// The sum of all bytes given, as 64 lower-case hexadecimal digits. Ends this sum: call it once.
  std::string finish();
  /// The same as bytes.
  Sha256Bytes finish_bytes();

 private:
  void compress(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                      0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  std::array<std::uint8_t, 64> buffer_{};
  std::size_t buffered_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

/// The sum of a whole text.
std::string sha256_of(std::string_view text);

/// HMAC-SHA-256: what only those who know `key` can say of `message`. Keys of any length.
Sha256Bytes hmac_sha256(std::string_view key, std::string_view message);

}  // namespace bantam
