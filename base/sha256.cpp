// The message schedule and the 64 rounds of SHA-256; HMAC's two sums.
#include "bantam/base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif
#include <fmt/format.h>

namespace bantam {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::uint8_t* at) {
  return (std::uint32_t{at[0]} << 24) | (std::uint32_t{at[1]} << 16) | (std::uint32_t{at[2]} << 8) | at[3];
}

void compress_portably(std::array<std::uint32_t, 8>& state, const std::uint8_t* blocks, std::size_t count) {
  for (; count > 0; --count, blocks += 64) {
    std::uint32_t w[64];
    for (int t = 0; t < 16; ++t) w[t] = big_endian(blocks + 4 * t);
    for (int t = 16; t < 64; ++t) {
      const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = s1 + w[t - 7] + s0 + w[t - 16];
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t t = 0; t < 64; ++t) {
      const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
      const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1;
      d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<std::uint32_t, 8> worked{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state[i] += worked[i];
  }
}

#if defined(__x86_64__)
bool has_sha_extensions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kSha = 1u << 29;  // of leaf 7's EBX; __builtin_cpu_supports does not know it in GCC 12
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0 && __builtin_cpu_supports("sse4.1") &&
         __builtin_cpu_supports("ssse3");
}

/// Four rounds an instruction pair. The instructions want the state as (a, b, e, f) and (c, d, g, h), and of the
/// message schedule the last 16 words, four a register (Intel's "SHA Extensions", 2013).
[[gnu::target("sha,sse4.1,ssse3")]] void compress_by_extensions(std::array<std::uint32_t, 8>& state,
                                                                const std::uint8_t* blocks, std::size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto* const words = reinterpret_cast<__m128i*>(state.data());
  const __m128i abcd = _mm_loadu_si128(words), efgh = _mm_loadu_si128(words + 1);
  const __m128i cdab = _mm_shuffle_epi32(abcd, 0xb1), hgfe = _mm_shuffle_epi32(efgh, 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, cdab, 0xf0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks) + i), swap);
#pragma GCC unroll 16
    for (int four = 0; four < 16; ++four) {
      __m128i& now = w[four % 4];
      if (four >= 4) {
        const __m128i &two_before = w[(four + 2) % 4], &last = w[(four + 3) % 4];
        now = _mm_sha256msg1_epu32(now, w[(four + 1) % 4]);
        now = _mm_sha256msg2_epu32(_mm_add_epi32(now, _mm_alignr_epi8(last, two_before, 4)), last);
      }
      const __m128i sum = _mm_add_epi32(now, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRound.data()) + four));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}
#endif

}  // namespace

void Sha256::compress(const std::uint8_t* blocks, std::size_t count) {
#if defined(__x86_64__)
  static const bool has_extensions = has_sha_extensions();
  if (extensions_ && has_extensions) return compress_by_extensions(state_, blocks, count);
#endif
  compress_portably(state_, blocks, count);
}

void Sha256::update(std::span<const std::uint8_t> bytes) {
  total_bytes_ += bytes.size();
  if (buffered_bytes_ > 0) {
    const std::size_t taken = std::min(bytes.size(), buffer_.size() - buffered_bytes_);
    std::copy_n(bytes.begin(), taken, buffer_.begin() + static_cast<std::ptrdiff_t>(buffered_bytes_));
    buffered_bytes_ += taken;
    bytes = bytes.subspan(taken);
    if (buffered_bytes_ < buffer_.size()) return;
    compress(buffer_.data(), 1);
    buffered_bytes_ = 0;
  }
  const std::size_t blocks = bytes.size() / buffer_.size();
  compress(bytes.data(), blocks);
  bytes = bytes.subspan(blocks * buffer_.size());
  std::copy(bytes.begin(), bytes.end(), buffer_.begin());
  buffered_bytes_ = bytes.size();
}

Sha256Bytes Sha256::finish_bytes() {
  const std::uint64_t bits = total_bytes_ * 8;
  // A one bit, zeros up to 56 bytes of the last block, then the length in bits.
  std::array<std::uint8_t, 72> tail{0x80};
  const std::size_t zeros = (buffered_bytes_ < 56 ? 56 : 120) - buffered_bytes_;
  for (std::size_t i = 0; i < 8; ++i) tail[zeros + i] = static_cast<std::uint8_t>(bits >> (56 - 8 * i));
  update(std::span(tail).first(zeros + 8));
  Sha256Bytes bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return bytes;
}

std::string Sha256::finish() {
  std::string digits;
  for (const std::uint8_t byte : finish_bytes()) digits += fmt::format("{:02x}", byte);
  return digits;
}

std::string sha256_of(std::string_view text) {
  Sha256 sum;
  sum.update(text);
  return sum.finish();
}

Sha256Bytes hmac_sha256(std::string_view key, std::string_view message) {
  std::array<std::uint8_t, 64> block{};  // the key, zeros after it; a longer one is replaced by its sum
  if (key.size() > block.size()) {
    Sha256 sum;
    sum.update(key);
    std::ranges::copy(sum.finish_bytes(), block.begin());
  } else {
    std::ranges::copy(key, block.begin());
  }
  for (std::uint8_t& byte : block) byte ^= 0x36;
  Sha256 inner, outer;
  inner.update(block);
  inner.update(message);
  for (std::uint8_t& byte : block) byte ^= 0x36 ^ 0x5c;
  outer.update(block);
  outer.update(inner.finish_bytes());
  return outer.finish_bytes();
}

}  // namespace bantam
