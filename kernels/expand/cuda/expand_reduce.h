// The gradient of the norm before an expanding convolution: the second GEMM of expand_backward, relu' and sums over
// rows.
#pragma once

#include "bantam/kernels/expand/expand_parts.h"

namespace bantam::kernels::cuda {

/// to.dz_before (rows, in), never null here, = relu'(z)·da, rounded once; z of `x`'s norm, da as ExpandReduceOperands
/// says, of `centred` (ã) and dz (rows, out); 0 where z is not above 0, whatever da is. And of the values as they are
/// stored Σ dz_before and Σ dz_before·x̂, to `to.totals` and, as dshift and dscale, to `to.dshift_before` and
/// `to.dscale_before`; null: not wanted. The other fields of `to` are not read. Workspace:
/// expand_reduce_workspace_bytes. By wgmma where the device has it, else by library GEMMs. Partial sums in a fixed
/// order. Deterministic.
void expand_reduce(const Exec& exec, const ExpandShape& shape, DType dtype, const void* centred, const void* dz,
                   const ExpandReduceOperands& operands, const NormOperand& x, const ExpandGradients& to,
                   Workspace workspace);

}  // namespace bantam::kernels::cuda
