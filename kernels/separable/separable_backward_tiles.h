// How the backward pass of a separable block is cut into tiles and parts on CUDA: by shape, dtype and shared memory
// only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/separable/separable_block.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

inline constexpr int kSeparableThreads = 256;  ///< of a thread block, in every kernel of the backward pass
/// Shared memory that every device from compute capability 7.5 on provides for a thread block.
inline constexpr std::int64_t kLeastSharedBytes = 64 * 1024;
/// With more than this, only one thread block fits a multiprocessor of 228 KB.
inline constexpr std::int64_t kMostSharedBytes = 113 * 1024;

/// Weight gradients of one part: pointwise (out, in), depthwise (3, 3, in), bias (out), in this order.
inline std::int64_t separable_gradient_elements(const SeparableBlockShape& s) {
  return s.pointwise_elements() + s.depthwise_elements() + s.out_channels;
}

/// The batch in `parts` runs of `each` images (the last may be shorter); a thread block sums the gradients of one run.
struct ImageParts {
  std::int64_t parts = 0, each = 1;
  static ImageParts of(std::int64_t batch, std::int64_t most) {
    const std::int64_t each = std::max<std::int64_t>((batch + most - 1) / most, 1);
    return {(batch + each - 1) / each, each};
  }
};

/// Tiles of the general kernel: a band of input rows times a group of input channels, for each image.
struct SeparableBackwardTiles {
  std::int64_t channels = 0;  ///< of a group: 8, 16 or 32, a divisor of in_channels; 0: no tile fits
  std::int64_t groups = 0, band_rows = 0, bands = 0;
  ImageParts images;
  std::int64_t gradient_parts() const { return bands * images.parts; }
};

/// Where a tile's arrays begin in shared memory, in bytes, and how long they are.
struct SeparableBackwardMemory {
  std::int64_t dz_rows = 0, dz_stride = 0;  ///< dz (positions, out channels), strides in elements
  std::int64_t mid_stride = 0, d_mid_stride = 0;
  std::int64_t weights = 0, codes = 0, zeros = 0, region = 0, region_bytes = 0, d_mid = 0, total = 0;

  static SeparableBackwardMemory of(const SeparableBlockShape& s, DType dtype, std::int64_t channels,
                                    std::int64_t band_rows) {
    const bool wide = dtype == DType::float32;
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    const auto up = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; };
    const std::int64_t conv_rows = std::min(s.conv_h(), band_rows + 2), positions = conv_rows * s.conv_w();
    const std::int64_t x_positions = std::min(s.in_h, band_rows + 2) * s.in_w;
    SeparableBackwardMemory m;
    // Strides that spread rows over all banks, for matrix loads (odd multiples of 16 bytes) and rows of floats.
    m.dz_stride = wide ? s.out_channels + 4 : up(s.out_channels, 16) + 8;
    m.mid_stride = wide || channels == 8 ? channels : channels + 8;
    m.d_mid_stride = channels == 8 ? 8 : channels + 8;
    m.dz_rows = up(positions + 15, 16);  // matrix loads may begin anywhere and read 16
    m.weights = m.dz_rows * m.dz_stride * size;
    m.codes = m.weights + up(s.out_channels, 16) * m.mid_stride * size;
    m.zeros =
        m.codes +
        up(s.pool == 2 ? (conv_rows / 2 + 1) * s.out_w() * s.out_channels / 2 : positions * s.out_channels / 8, 16);
    m.region = m.zeros + s.in_w * channels * size;
    m.region_bytes = std::max(x_positions * channels, up(positions, 16) * m.mid_stride) * size;
    m.d_mid = m.region + 2 * m.region_bytes;
    m.total = m.d_mid + (band_rows + 2) * (s.in_w + 2) * m.d_mid_stride * 4;
    m.total = std::max<std::int64_t>(m.total, kSeparableThreads * 18 * 4);  // sums of the depthwise gradient
    return m;
  }
};

/// Whether the moments of dy and patches of x replace the general kernel's products: few input channels.
inline bool separable_uses_moments(const SeparableBlockShape& s) { return s.in_channels <= 4; }

/// The tiles for a device whose thread blocks may have `shared_limit` bytes: as those of kMostSharedBytes, or else as
/// those of kLeastSharedBytes, so that two sets of tiles are all that a workspace must do for. Few channels or rows a
/// tile where there are few images, so that about a block a multiprocessor is there; else as many as fit.
inline SeparableBackwardTiles separable_backward_tiles(const SeparableBlockShape& s, DType dtype,
                                                       std::int64_t shared_limit) {
  constexpr std::int64_t kEnoughBlocks = 128, kMostBlocks = 2 * kReferenceMultiprocessors;
  const std::int64_t limit = shared_limit >= kMostSharedBytes ? kMostSharedBytes : kLeastSharedBytes;
  const auto fits = [&](std::int64_t channels, std::int64_t rows) {
    return SeparableBackwardMemory::of(s, dtype, channels, rows).total <= limit;
  };
  SeparableBackwardTiles t;
  for (const std::int64_t channels : {32, 16, 8}) {
    if (s.in_channels % channels != 0) continue;
    std::int64_t rows = s.in_h;
    while (rows > 1 && !fits(channels, rows)) rows = (rows + 1) / 2;
    if (!fits(channels, rows)) continue;
    t.channels = channels;
    t.band_rows = rows;
    // Short bands recompute many of their neighbours' rows: fewer channels are better.
    if (rows < std::min<std::int64_t>(s.in_h, 8)) continue;
    if (s.batch * (s.in_channels / channels) * ((s.in_h + rows - 1) / rows) > kEnoughBlocks) break;
  }
  if (t.channels == 0) return t;
  t.groups = s.in_channels / t.channels;
  const auto blocks = [&] { return s.batch * t.groups * ((s.in_h + t.band_rows - 1) / t.band_rows); };
  while (s.batch > 0 && blocks() < kEnoughBlocks && t.band_rows > 4) t.band_rows = (t.band_rows + 1) / 2;
  t.bands = (s.in_h + t.band_rows - 1) / t.band_rows;
  t.images = ImageParts::of(s.batch, std::max<std::int64_t>(kMostBlocks / (t.groups * t.bands), 1));
  return t;
}

/// Tiles of the moment kernel: a band of 2x2 windows of the convolution's output, for each image.
struct SeparableMomentTiles {
  std::int64_t all_window_rows = 0, window_columns = 0;  ///< of an image
  std::int64_t window_rows = 0, bands = 0;
  /// Bytes; shared_bytes above the limit: does not fit. The sums of the moments come where x was.
  std::int64_t pairs_at = 0, places_at = 0, weights_at = 0, shared_bytes = 0;
  ImageParts images;
  std::int64_t gradient_parts() const { return bands * images.parts; }
};

/// Rows of the moment matrix in shared memory: taps times channels and a row of ones, in tiles of 16, and one that
/// spreads columns over the banks.
constexpr std::int64_t separable_moment_rows(std::int64_t in_channels) { return (9 * in_channels + 16) / 16 * 16 + 1; }

inline SeparableMomentTiles separable_moment_tiles(const SeparableBlockShape& s, DType dtype) {
  constexpr std::int64_t kEnoughBlocks = 128, kMostBlocks = 2 * kReferenceMultiprocessors;
  SeparableMomentTiles t;
  t.all_window_rows = s.pool == 2 ? s.out_h() : (s.conv_h() + 1) / 2;
  t.window_columns = s.pool == 2 ? s.out_w() : (s.conv_w() + 1) / 2;
  const auto set_rows = [&](std::int64_t rows) {
    const std::int64_t x_rows = 2 * rows + 2, columns = s.in_w + s.pad_left + s.pad_right;
    t.window_rows = rows;
    t.bands = (t.all_window_rows + rows - 1) / rows;
    // Half types: x as it lies in memory and some zeros, then pairs of neighbours. float32: rows with a longer pitch.
    t.pairs_at = dtype == DType::float32 ? 0 : (x_rows * s.in_w * s.in_channels * 2 + 47) / 16 * 16;
    t.places_at = t.pairs_at + x_rows * (columns * s.in_channels + 8) * 4;
    t.weights_at = t.places_at + rows * t.window_columns * 4 * (dtype == DType::float32 && s.pool == 1 ? 4 : 1);
    t.weights_at = std::max(t.weights_at, kSeparableThreads * separable_moment_rows(s.in_channels) * 4);
    t.shared_bytes = t.weights_at + (9 + s.out_channels) * s.in_channels * 4;
  };
  set_rows(std::max<std::int64_t>(t.all_window_rows, 1));
  while (t.window_rows > 1 && t.shared_bytes > kLeastSharedBytes) set_rows((t.window_rows + 1) / 2);
  while (s.batch > 0 && s.batch * t.bands < kEnoughBlocks && t.window_rows > 2) set_rows((t.window_rows + 1) / 2);
  t.images = ImageParts::of(s.batch, std::max<std::int64_t>(kMostBlocks / t.bands, 1));
  return t;
}

/// Whether the backward pass supports the shape on every device.
inline bool separable_backward_fits(const SeparableBlockShape& s, DType dtype) {
  if (separable_uses_moments(s)) return separable_moment_tiles(s, dtype).shared_bytes <= kLeastSharedBytes;
  return separable_backward_tiles(s, dtype, kLeastSharedBytes).channels > 0;
}

/// Scratch bytes of the backward pass: one gradient a part, for the device with the most parts.
inline std::size_t separable_backward_workspace_bytes(const SeparableBlockShape& s, DType dtype) {
  const std::int64_t parts = separable_uses_moments(s)
                                 ? separable_moment_tiles(s, dtype).gradient_parts()
                                 : std::max(separable_backward_tiles(s, dtype, kLeastSharedBytes).gradient_parts(),
                                            separable_backward_tiles(s, dtype, kMostSharedBytes).gradient_parts());
  return static_cast<std::size_t>(parts * separable_gradient_elements(s)) * sizeof(float);
}

}  // namespace bantam::kernels
