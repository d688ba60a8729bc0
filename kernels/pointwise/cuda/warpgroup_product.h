// Pointwise convolutions with wgmma (compute capability 9.0), which compute the moments of their output.
#pragma once

#include "bantam/kernels/common/cuda/reduce/part_moments.h"
#include "bantam/kernels/norm/batch_norm_add.h"
#include "bantam/kernels/pointwise/warpgroup_parts.h"

namespace bantam::kernels::cuda {

/// y (rows, out) = a·wᵀ, w (out, in), as `shape` says: a = x.x, or where x has a norm f(x̂·scale + shift), f relu or
/// relu6, rounded as batch_norm_apply writes it. `moments`: of y, shape.parts() parts; not computed where its pointer
/// is null. x, w, y of `dtype`, addresses aligned to 16; nothing aliases. Deterministic. False, with nothing done,
/// where shape (no rows), addresses, device or driver are not supported.
bool warpgroup_product(const Exec& exec, const WarpgroupProduct& shape, DType dtype, const NormOperand& x,
                       const void* w, void* y, const PartMoments& moments);

}  // namespace bantam::kernels::cuda
