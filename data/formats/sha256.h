// SHA-256 of bytes that arrive in chunks. Source: FIPS 180-4, sections 4.1.2, 5.1.1 and 6.2.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bantam {

/// One running sum. Not thread-safe; different sums are independent.
class Sha256 {
 public:
  void update(std::span<const std::uint8_t> bytes);
  /// The sum of all bytes given, as 64 lower-case hexadecimal digits. Ends this sum: call it once.
  std::string finish();

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

}  // namespace bantam
