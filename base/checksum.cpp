// Each step is a bijection of the sum, so that no change of one word can get lost.
#include "bantam/base/checksum.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace bantam {

namespace {

/// Spreads each bit over the word, so that no few bits of two words cancel. Source: Steele, Lea, Flood, "Fast
/// splittable pseudorandom number generators" (SplitMix64's finaliser).
std::uint64_t mixed(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

}  // namespace

void Checksum::add_word(std::uint64_t word) {
  word = mixed(word);
  sum_ = (sum_ ^ word) * 0x100000001b3;  // FNV's prime for 64 bits
  sum_ ^= sum_ >> 32;                    // a product alone never moves high bits down
}

void Checksum::add(std::span<const std::byte> bytes) {
  add_word(bytes.size());
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), taken);
    add_word(word);
    bytes = bytes.subspan(taken);
  }
}

void Checksum::add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }

std::string Checksum::digits() const { return fmt::format("{:016x}", sum_); }

}  // namespace bantam
