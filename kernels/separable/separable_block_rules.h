// Says what the separable block's CUDA kernels support, and their scratch memory: pure functions of shapes, known
// also where there is no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/kernels/separable/separable_backward_tiles.h"
#include "bantam/kernels/separable/separable_block.h"

namespace bantam::kernels::cuda {

/// Whether the input rows of one output row fit shared memory in float32, beside weights and sums (48 to 64 KiB in
/// all).
inline bool separable_block_fits(const SeparableBlockShape& s) {
  constexpr std::int64_t kTileBytes = 37 << 10;
  return (s.pool + 2) * (s.conv_w() + 2) * (s.in_channels + 4) * 4 <= kTileBytes;
}

/// Bytes of the partial sums of the weight gradients.
inline std::size_t separable_block_backward_workspace_rule(const SeparableBlockShape& s, DType dtype) {
  return separable_backward_workspace_bytes(s, dtype);
}

}  // namespace bantam::kernels::cuda
