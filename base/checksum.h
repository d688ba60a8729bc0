// A 64-bit checksum of bytes, fast enough for everything that is written: it detects damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bantam {

/// FNV-1a (Fowler, Noll, Vo) over little-endian words of 64 bits, each mixed first, with the high half of the sum
/// folded into the low one after each: of two texts of one length that differ in a single word, the sums differ.
class Checksum {
 public:
  /// Adds one chunk: its bytes and its length. The same bytes in chunks of other sizes have another sum.
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text);
  std::uint64_t value() const { return sum_; }
  /// 16 lower-case hexadecimal digits.
  std::string digits() const;

 private:
  void add_word(std::uint64_t word);
  std::uint64_t sum_ = 0xcbf29ce484222325;  // FNV's offset basis
};

}  // namespace bantam
