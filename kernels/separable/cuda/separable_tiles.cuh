// How the separable block's forward kernels cut images: a unit is a few output rows of one image, whose input rows a
// thread block holds in shared memory, framed by the padding.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/fast_divide.h"
#include "bantam/kernels/separable/separable_block.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels::cuda {

inline constexpr int kForwardThreads = 128;
inline constexpr int kForwardWarps = kForwardThreads / 32;

struct SeparableTiles {
  int in_h, in_w, channels, out_channels, out_h, out_w;
  int pad_top, pad_left, padded_w;  ///< padded_w: columns of a tile, with the padding
  int rows;                         ///< output rows of a unit (an image's last has fewer)
  int parts;                        ///< units of an image
  int units;
  int bias, relu;
  int framed;  ///< whether a tile has elements that are never filled: padding, or slack after rows
  FastDivide by_parts, by_out_w, by_row, by_pixel;  ///< by_row, by_pixel: vectors that a tile is filled in

  /// Input rows that a tile has room for.
  __host__ __device__ int tile_rows(int pool) const { return rows * pool + 2; }
};

/// A unit as its thread block sees it.
struct SeparableUnit {
  std::int64_t image;
  int first_row, rows;    ///< of the output
  int first_in, in_rows;  ///< of the input, counted without padding: may begin above 0 and end below in_h
  int positions;          ///< outputs, all channels of one counted once
  std::int64_t first_position;
};

template <int kPool>
__device__ inline SeparableUnit unit_at(const SeparableTiles& t, int index) {
  const Divided at = t.by_parts.divide(static_cast<std::uint32_t>(index));
  SeparableUnit unit;
  unit.image = at.quotient;
  unit.first_row = static_cast<int>(at.remainder) * t.rows;
  unit.rows = min(t.rows, t.out_h - unit.first_row);
  unit.first_in = unit.first_row * kPool - t.pad_top;
  unit.in_rows = unit.rows * kPool + 2;
  unit.positions = unit.rows * t.out_w;
  unit.first_position = (unit.image * t.out_h + unit.first_row) * t.out_w;
  return unit;
}

/// Units of at most `most_rows` rows: whole images where there are many, else as few rows as are needed for work on
/// every multiprocessor.
inline SeparableTiles separable_tiles(const SeparableBlockShape& s, std::int64_t most_rows) {
  constexpr std::int64_t kWantedUnits = 2 * kReferenceMultiprocessors;
  const std::int64_t wanted_parts =
      std::clamp<std::int64_t>(kWantedUnits / std::max<std::int64_t>(s.batch, 1), 1, s.out_h());
  const std::int64_t fitting_parts = std::max(wanted_parts, (s.out_h() + most_rows - 1) / most_rows);
  const std::int64_t rows = (s.out_h() + fitting_parts - 1) / fitting_parts;
  const std::int64_t parts = (s.out_h() + rows - 1) / rows;
  if (s.batch * parts >> 31 != 0) throw ShapeError("separable_block: the batch is too large for one call on CUDA");
  SeparableTiles t{};
  t.in_h = static_cast<int>(s.in_h);
  t.in_w = static_cast<int>(s.in_w);
  t.channels = static_cast<int>(s.in_channels);
  t.out_channels = static_cast<int>(s.out_channels);
  t.out_h = static_cast<int>(s.out_h());
  t.out_w = static_cast<int>(s.out_w());
  t.pad_top = static_cast<int>(s.pad_top);
  t.pad_left = static_cast<int>(s.pad_left);
  t.padded_w = static_cast<int>(s.conv_w() + 2);
  t.rows = static_cast<int>(rows);
  t.parts = static_cast<int>(parts);
  t.units = static_cast<int>(s.batch * parts);
  t.bias = s.bias;
  t.relu = s.relu;
  t.framed = s.pad_top + s.pad_bottom + s.pad_left + s.pad_right > 0;
  t.by_parts = FastDivide(parts);
  t.by_out_w = FastDivide(s.out_w());
  return t;
}

}  // namespace bantam::kernels::cuda
