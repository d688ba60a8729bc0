// Depth to space on the CPU: rows of the wide image in parallel. With the channel last in the deep image's channel axis
// a row of a block is one run of memory; else values move one by one.
#include "bantam/kernels/image/depth_to_space.h"

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/image/cpu/image_rows.h"

namespace bantam::kernels::cpu {
namespace {

/// Calls move(deep pixel's first element, its block row, wide element of the block row's first pixel) for every row of
/// every block; both are offsets.
template <class Move>
void for_block_rows(const Exec& exec, const DepthToSpaceShape& s, Move&& move) {
  const std::int64_t depth = s.channels * s.block * s.block, run = s.channels * s.block;
  for_image_rows(s.batch, s.h * s.block, s.w * run, exec.threads, [&](std::int64_t n, std::int32_t row) {
    const std::int64_t deep = (n * s.h + row / s.block) * s.w * depth, wide = (n * s.h * s.block + row) * s.w * run;
    for (std::int64_t column = 0; column < s.w; ++column)
      move(deep + column * depth, row % s.block, wide + column * run);
  });
}

/// kToWide: deep to wide; else the inverse.
template <bool kToWide, class T>
void move_values(const Exec& exec, const DepthToSpaceShape& s, const T* from, T* to) {
  const std::int64_t run = s.channels * s.block, places = s.block * s.block;
  for_block_rows(exec, s, [&](std::int64_t deep, std::int64_t row, std::int64_t wide) {
    if (!s.channel_first) {
      deep += row * run;
      std::memcpy(to + (kToWide ? wide : deep), from + (kToWide ? deep : wide),
                  static_cast<std::size_t>(run) * sizeof(T));
      return;
    }
    for (std::int64_t column = 0; column < s.block; ++column) {
      const std::int64_t pixel = wide + column * s.channels, first = deep + row * s.block + column;
      for (std::int64_t c = 0; c < s.channels; ++c) {
        if constexpr (kToWide)
          to[pixel + c] = from[first + c * places];
        else
          to[first + c * places] = from[pixel + c];
      }
    }
  });
}

template <bool kToWide>
void move_typed(const Exec& exec, const DepthToSpaceShape& s, DType dtype, const void* from, void* to) {
  if (s.elements() == 0) return;
  if (size_of(dtype) == sizeof(float))
    return move_values<kToWide>(exec, s, static_cast<const float*>(from), static_cast<float*>(to));
  move_values<kToWide>(exec, s, static_cast<const std::uint16_t*>(from), static_cast<std::uint16_t*>(to));
}

}  // namespace

void depth_to_space(const Exec& exec, const DepthToSpaceShape& s, DType dtype, const void* deep, void* wide) {
  move_typed<true>(exec, s, dtype, deep, wide);
}
void space_to_depth(const Exec& exec, const DepthToSpaceShape& s, DType dtype, const void* wide, void* deep) {
  move_typed<false>(exec, s, dtype, wide, deep);
}

}  // namespace bantam::kernels::cpu
