// The end of the separable block's half forward: bias, ReLU and the window's maximum of what a lane has, and the codes
// that backward reads.
#pragma once

#include "bantam/kernels/common/cuda/mma/half_pair.cuh"

namespace bantam::kernels::cuda {

/// Eight channels of one output, and their codes.
template <class T>
struct SeparableHalfOutput {
  using Pair = HalfPair<T>;
  /// Products of 32 channels: tile, eight channels' columns, register.
  using Sums = float[2][4][4];

  std::uint32_t y[4], codes;

  /// Without pooling: a bit an element.
  __device__ static SeparableHalfOutput finish_pixel(const float (&sums)[4][4], int half,
                                                     const std::uint32_t (&bias)[4], bool relu) {
    SeparableHalfOutput out;
    std::uint32_t open = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      auto v = Pair::add(Pair::pack(sums[j][2 * half], sums[j][2 * half + 1]), Pair::of(bias[j]));
      if (relu) {
        open |= mask_greater(v, Pair::of(0)) & (1u << 2 * j | 1u << (2 * j + 17));
        v = max_of(v, Pair::of(0));
      }
      out.y[j] = bits_of(v);
    }
    out.codes = (open | open >> 16) & 0xffu;
    return out;
  }

  /// With pooling: the window's maximum, and four bits an element. Of a pair's code, the low half belongs to the first
  /// channel: x ^ 5 and y ^ 3 spell the winner's place as one bit of four, x set for the right column, y for the lower
  /// row. The bias moves all four alike and is added to the maximum.
  __device__ static SeparableHalfOutput finish_window(const Sums& sums, const std::uint32_t (&bias)[4], bool relu) {
    SeparableHalfOutput out;
    std::uint32_t code[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto p0 = Pair::pack(sums[0][j][0], sums[0][j][1]), p1 = Pair::pack(sums[0][j][2], sums[0][j][3]);
      const auto p2 = Pair::pack(sums[1][j][0], sums[1][j][1]), p3 = Pair::pack(sums[1][j][2], sums[1][j][3]);
      const auto above = max_of(p0, p1), below = max_of(p2, p3);
      auto best = Pair::add(max_of(above, below), Pair::of(bias[j]));
      const std::uint32_t down = mask_greater(below, above);
      const std::uint32_t right = (down & mask_greater(p3, p2)) | (~down & mask_greater(p1, p0));
      code[j] = (right ^ 0x50005u) & (down ^ 0x30003u) & 0xf000fu;
      if (relu) {
        code[j] &= mask_greater(best, Pair::of(0));
        best = max_of(best, Pair::of(0));
      }
      out.y[j] = bits_of(best);
    }
    const std::uint32_t left = code[0] | code[1] << 8, right = code[2] | code[3] << 8;
    out.codes = __byte_perm(left, right, 0x5410) | __byte_perm(left, right, 0x7632) << 4;
    return out;
  }

  /// To `element` of y; where codes are wanted, to theirs.
  template <int kPool>
  __device__ void store(std::int64_t element, T* to, std::uint8_t* to_codes) const {
    *reinterpret_cast<uint4*>(to + element) = uint4{y[0], y[1], y[2], y[3]};
    if (to_codes == nullptr) return;
    if constexpr (kPool == 2) {
      *reinterpret_cast<std::uint32_t*>(to_codes + element / 2) = codes;
    } else {
      to_codes[element / 8] = static_cast<std::uint8_t>(codes);
    }
  }
};

}  // namespace bantam::kernels::cuda
