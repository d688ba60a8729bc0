// How expand_backward's second GEMM is cut, and what its operands are: by shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/expand/expand.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

/// Rows of a tile of the wgmma kernels, for each of the two warpgroups of a block.
inline constexpr std::int64_t kExpandTileRows = 64;

/// The most parts in which Σ dz_before and Σ dz_before·(x - mean) come: those of the wgmma kernel, one a warpgroup and
/// block, or of a pass over rows.
inline std::int64_t expand_reduce_parts() { return 2 * kReferenceMultiprocessors; }

/// The operands of da = ([ã | dz]·[-M·s ; (k⊙w)/ρ] with the first products times scales[0] before the second are added)
/// · scales[1] + row, in memory of the device.
struct ExpandReduceOperands {
  const void* stacked = nullptr;  ///< (in + out, in), of the call's dtype: -M·s, then k⊙w/ρ
  const float* scales = nullptr;  ///< (2): 1/(s·ρ), ρ; both powers of two
  const float* row = nullptr;     ///< (in)
};

}  // namespace bantam::kernels
