// 3x3 convolutions that the wgmma kernels compute, and how they are cut into tiles and parts: by shape only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

/// y (batch, height, width, out) = x (batch, height, width, in) convolved with w (out, 3, 3, in), stride 1, padding 1;
/// or as a gradient, with w (in, 3, 3, out), its taps turned about. `in` is a multiple of 64, `out` is 64 or a multiple
/// of 128.
///
/// A tile of y is cut along three axes, the first of which lies fastest in shared memory: (width, height, batch), or
/// (batch, width, height) where images are at most 4x4. It consists of units, each of which is one operand of wgmma: 8
/// rows of 8 pixels of an image; 4 pixels of a row of 16 such small images; or, where channels are 64, 32 rows of 8
/// pixels. The tile's input is a box one pixel larger on each side of an image, which is copied once, 64 channels at a
/// time; nine operands of it, one a tap, differ in their first row.
struct WarpgroupConv3x3 {
  std::int64_t batch = 0, height = 0, width = 0, in = 0, out = 0;
  bool gradient = false;

  using Extents = std::array<std::int64_t, 3>;

  /// Whether weights are the first operand and stay in shared memory, and each warpgroup has tiles of its own.
  bool tall() const { return in == 64 && out == 64 && fills(32, 8); }
  bool small() const { return height <= 4 && width <= 4; }
  Extents sizes() const { return small() ? Extents{batch, width, height} : Extents{width, height, batch}; }
  Extents unit() const { return tall() ? Extents{8, 32, 1} : small() ? Extents{16, 4, 1} : Extents{8, 8, 1}; }
  /// Units of a tile along each axis; where there are four, those of the fewest pixels outside images, then of the
  /// smallest box.
  Extents units() const {
    if (tall()) return {1, 1, 1};
    if (small()) return {1, 1, 4};
    Extents best{};
    std::int64_t least = 0;
    for (const Extents& units : {Extents{2, 2, 1}, {1, 4, 1}, {4, 1, 1}, {1, 2, 2}, {2, 1, 2}, {1, 1, 4}})
      if (const std::int64_t area = covered(8 * units[1], 8 * units[0]); least == 0 || area < least)
        best = units, least = area;
    return best;
  }
  Extents tile() const {
    const Extents u = unit(), n = units();
    return {u[0] * n[0], u[1] * n[1], u[2] * n[2]};
  }
  /// Pixels of padding on each side of a tile.
  Extents halo() const { return small() ? Extents{0, 1, 1} : Extents{1, 1, 0}; }
  Extents tiles_along() const {
    const Extents size = sizes(), step = tile();
    return {ceil_div(size[0], step[0]), ceil_div(size[1], step[1]), ceil_div(size[2], step[2])};
  }
  std::int64_t tiles() const {
    const Extents n = tiles_along();
    return n[0] * n[1] * n[2];
  }

  /// Columns of a block.
  std::int64_t columns() const { return out % 128 == 0 ? 128 : 64; }
  std::int64_t column_blocks() const { return out / columns(); }
  /// Blocks that share a column of blocks' tiles: as many as fill a large GPU, one on a multiprocessor.
  std::int64_t row_blocks() const {
    const std::int64_t each = tall() ? ceil_div(tiles(), kWarpgroups) : tiles();
    return std::clamp<std::int64_t>(kReferenceMultiprocessors / std::max<std::int64_t>(column_blocks(), 1), 1,
                                    std::max<std::int64_t>(each, 1));
  }
  /// Parts of the moments: one a warpgroup.
  std::int64_t parts() const { return row_blocks() * kWarpgroups; }

  /// Whether at least 7/8 of the pixels that tiles compute lie in images, whatever the batch.
  bool fills() const {
    const Extents step = tile();
    return small() ? height * width * 8 >= 16 * 7 : fills(step[1], step[0]);
  }

  static constexpr std::int64_t kWarpgroups = 2;  ///< of a block, that multiply

 private:
  static std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
  /// Pixels of tiles of `rows` x `columns` that cover an image.
  std::int64_t covered(std::int64_t rows, std::int64_t columns) const {
    return ceil_div(height, rows) * rows * ceil_div(width, columns) * columns;
  }
  bool fills(std::int64_t rows, std::int64_t columns) const { return height * width * 8 >= covered(rows, columns) * 7; }
};

/// A pass of a convolution as a problem of the kernels; no batch where they do not support it: float16 or bfloat16,
/// 3x3, stride 1, padding 1, channels as WarpgroupConv3x3 says. No rule depends on the batch.
inline WarpgroupConv3x3 warpgroup_conv3x3_of(const Conv2dShape& s, DType dtype, Conv2dPass pass) {
  constexpr std::int64_t kMost = 0x7fffffff;
  const bool plain = s.kernel_h == 3 && s.kernel_w == 3 && s.stride_h == 1 && s.stride_w == 1 && s.dilation_h == 1 &&
                     s.dilation_w == 1 && s.groups == 1 && s.pad_top == 1 && s.pad_bottom == 1 && s.pad_left == 1 &&
                     s.pad_right == 1;
  if (!plain || !is_half(dtype) || s.x_elements() <= 0 || s.y_elements() <= 0 || pass == Conv2dPass::grad_weight)
    return {};
  const bool gradient = pass == Conv2dPass::grad_input;
  const WarpgroupConv3x3 problem{
      s.batch, s.in_h, s.in_w, gradient ? s.out_channels : s.in_channels, gradient ? s.in_channels : s.out_channels,
      gradient};
  const bool channels = problem.in % 64 == 0 && (problem.out == 64 || problem.out % 128 == 0);
  return channels && s.batch * s.in_h * s.in_w < kMost - (1 << 20) ? problem : WarpgroupConv3x3{};
}

/// What else a convolution computes.
enum class Conv3x3Use : std::uint8_t { with_statistics, alone };

/// The convolutions for which the kernels replace cuDNN's, and no batch for others. With statistics: all whose tiles
/// are full, as a pass over y goes. Alone: those of 64 channels, where cuDNN's reach 60 % of the tensor cores' rate,
/// and 86 to 91 % elsewhere. Estimates: not timed yet.
inline WarpgroupConv3x3 preferred_warpgroup_conv3x3(const Conv2dShape& s, DType dtype, Conv2dPass pass,
                                                    Conv3x3Use use) {
  const WarpgroupConv3x3 problem = warpgroup_conv3x3_of(s, dtype, pass);
  if (problem.batch == 0) return {};
  const bool wins = use == Conv3x3Use::with_statistics ? problem.fills() : problem.tall();
  return wins ? problem : WarpgroupConv3x3{};
}

}  // namespace bantam::kernels
