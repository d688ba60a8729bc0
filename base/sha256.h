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

/// One running sum. A copy goes on by itself. Not thread-safe; different sums are independent. On x86 processors with
/// the SHA extensions it uses them.
class Sha256 {
 public:
  Sha256() = default;
  /// `extensions` false: without the processor's own instructions for it.
  explicit Sha256(bool extensions) : extensions_(extensions) {}
  void update(std::span<const std::uint8_t> bytes);
  void update(std::span<const std::byte> bytes) {
    update({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  }
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  /// The sum of all bytes given, as 64 lower-case hexadecimal digits. Ends this sum: call it once.
  std::string finish();
  /// The same as bytes.
  Sha256Bytes finish_bytes();

 private:
  void compress(const std::uint8_t* blocks, std::size_t count);

  std::array<std::uint32_t, 8> state_{0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                      0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  std::array<std::uint8_t, 64> buffer_{};
  std::size_t buffered_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  bool extensions_ = true;
};

/// The sum of a whole text.
std::string sha256_of(std::string_view text);

/// Length and SHA-256 (64 hexadecimal digits) of a file's bytes.
struct FileSum {
  std::uint64_t bytes = 0;
  std::string sha256 = {};
  bool operator==(const FileSum&) const = default;
};

/// The FileSum of a file that grows.
class RunningSum {
 public:
  void add(std::span<const std::byte> bytes) {
    sum_.update(bytes);
    bytes_ += bytes.size();
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::uint64_t bytes() const { return bytes_; }
  /// The sum so far, which goes on.
  FileSum finished() const { return {.bytes = bytes_, .sha256 = Sha256(sum_).finish()}; }

 private:
  Sha256 sum_;
  std::uint64_t bytes_ = 0;
};

/// HMAC-SHA-256: what only those who know `key` can say of `message`. Keys of any length.
Sha256Bytes hmac_sha256(std::string_view key, std::string_view message);

}  // namespace bantam
