// The end of a separable block on the CPU, and its gradient: bias, ReLU, pooling and their codes, eight channels at a
// time.
#pragma once

#include <array>
#include <cstring>

#include "bantam/kernels/common/cpu/float8.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"
#include "bantam/kernels/separable/separable_block.h"

namespace bantam::kernels::cpu {

/// Bit i of a byte to bit 4·i: a row of eight codes with one of their four bits.
constexpr std::array<std::uint32_t, 256> make_spread() {
  std::array<std::uint32_t, 256> spread{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    for (std::uint32_t bit = 0; bit < 8; ++bit) spread[byte] |= (byte >> bit & 1u) << (4 * bit);
  }
  return spread;
}
inline constexpr std::array<std::uint32_t, 256> kSpread = make_spread();

/// Rounds v to T and returns it as float: the value that memory receives.
template <class T>
[[gnu::always_inline]] inline Float8 as_stored(Float8 v) {
  if constexpr (sizeof(T) == sizeof(float)) return v;
  T values[kLanes];
  store8(values, v);
  return load8(values);
}

[[gnu::always_inline]] inline Float8 relu8(Float8 v) { return v < 0.0f ? Float8{} : v; }  // NaN stays

/// y and codes (may be null) of eight channels of one position without pooling; `sums` before bias.
template <class T>
[[gnu::always_inline]] inline void finish_pixel(const float* sums, Float8 bias, bool relu, T* y, std::uint8_t* code) {
  const Float8 v = as_stored<T>(load8(sums) + bias);
  store8(y, relu ? relu8(v) : v);
  if (code != nullptr) *code = to_bits(v > 0.0f);
}

/// The same for a 2x2 window: the other pixels lie `column` and `row` elements on.
template <class T>
[[gnu::always_inline]] inline void finish_window(const float* sums, std::int64_t column, std::int64_t row, Float8 bias,
                                                 bool relu, T* y, std::uint8_t* code) {
  Float8 best = as_stored<T>(load8(sums) + bias);
  unsigned won[4] = {0xff, 0, 0, 0};
#pragma GCC unroll 3
  for (int place = 1; place < 4; ++place) {
    const Float8 v = as_stored<T>(load8(sums + place / 2 * row + place % 2 * column) + bias);
    // The first NaN wins too: it beats numbers and loses to nothing, as comparisons with it are false.
    const Int8 wins = (v > best) | ((v != v) & (best == best));
    best = wins ? v : best;
    won[place] = to_bits(wins);
  }
  store8(y, relu ? relu8(best) : best);
  if (code == nullptr) return;
  const unsigned open = relu ? to_bits(best > 0.0f) : 0xffu;
  won[3] &= open;
  won[2] &= open & ~won[3];
  won[1] &= open & ~won[3] & ~won[2];
  won[0] = open & ~won[3] & ~won[2] & ~won[1];
  const std::uint32_t codes = kSpread[won[0]] | kSpread[won[1]] << 1 | kSpread[won[2]] << 2 | kSpread[won[3]] << 3;
  for (int i = 0; i < 4; ++i) code[i] = static_cast<std::uint8_t>(codes >> (8 * i));
}

/// All of an image: sums (conv_h, conv_w, out_channels) to y; codes may be null.
template <class T>
void finish_image(const SeparableBlockShape& s, const float* sums, const float* bias, T* y, std::uint8_t* codes) {
  const std::int64_t channels = s.out_channels, row = s.conv_w() * channels, bytes = s.pool == 2 ? 4 : 1;
  const std::int64_t groups = channels / kLanes;
  for (std::int64_t oh = 0; oh < s.out_h(); ++oh) {
    for (std::int64_t i = 0; i < s.out_w() * groups; ++i) {
      const std::int64_t ow = i / groups, c = i % groups * kLanes, at = (oh * s.out_w() + ow) * channels + c;
      const Float8 shift = bias != nullptr ? load8(bias + c) : Float8{};
      const float* from = sums + oh * s.pool * row + ow * s.pool * channels + c;
      std::uint8_t* code = codes != nullptr ? codes + at / kLanes * bytes : nullptr;
      if (s.pool == 2) {
        finish_window(from, channels, row, shift, s.relu, y + at, code);
      } else {
        finish_pixel(from, shift, s.relu, y + at, code);
      }
    }
  }
}

/// dz of an image, all of it, and its sums over positions, added to d_bias (null: not wanted). `codes` null: every
/// element passes (no pooling, no ReLU).
template <class T>
void scatter_image(const SeparableBlockShape& s, const T* dy, const std::uint8_t* codes, float* dz, float* d_bias) {
  const std::int64_t channels = s.out_channels, row = s.conv_w() * channels, groups = channels / kLanes;
  const Int8 lane{0, 1, 2, 3, 4, 5, 6, 7};
  for (std::int64_t oh = 0; oh < s.out_h(); ++oh) {
    for (std::int64_t i = 0; i < s.out_w() * groups; ++i) {
      const std::int64_t ow = i / groups, c = i % groups * kLanes, at = (oh * s.out_w() + ow) * channels + c;
      Float8 g = load8(dy + at);
      float* to = dz + oh * s.pool * row + ow * s.pool * channels + c;
      if (s.pool == 2) {
        std::uint32_t word = 0;
        for (int k = 0; k < 4; ++k) word |= static_cast<std::uint32_t>(codes[at / 2 + k]) << (8 * k);
        const Int8 code = (Int8{} + static_cast<std::int32_t>(word)) >> (4 * lane);
#pragma GCC unroll 4
        for (int place = 0; place < 4; ++place) {
          store8(to + place / 2 * row + place % 2 * channels, (code & (1 << place)) != 0 ? g : Float8{});
        }
        g = (code & 15) != 0 ? g : Float8{};
      } else {
        if (codes != nullptr) {
          const Int8 open = (Int8{} + static_cast<std::int32_t>(codes[at / kLanes])) & (1 << lane);
          g = open != 0 ? g : Float8{};
        }
        store8(to, g);
      }
      if (d_bias != nullptr) store8(d_bias + c, load8(d_bias + c) + g);
    }
  }
  if (s.pool == 1) return;
  for (std::int64_t h = 0; h < s.conv_h(); ++h) {  // what no window covers
    const std::int64_t covered = h < 2 * s.out_h() ? 2 * s.out_w() * channels : 0;
    std::fill(dz + h * row + covered, dz + (h + 1) * row, 0.0f);
  }
}

}  // namespace bantam::kernels::cpu
