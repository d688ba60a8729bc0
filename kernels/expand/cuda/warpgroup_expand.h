// The wgmma kernels of the family (compute capability 9.0). Each returns false, with nothing done, where shape,
// addresses, device or driver are not supported.
#pragma once

#include "bantam/kernels/expand/expand.h"
#include "bantam/kernels/expand/expand_parts.h"

namespace bantam::kernels::cuda {

/// expand_centre with moments by two kernels, for 64 and 128 channels in; workspace: ExpandCentreScratch.
bool warpgroup_expand_centre(const Exec& exec, const ExpandShape& shape, DType dtype, const NormOperand& x,
                             void* centred, const ExpandMoments& moments, Workspace workspace);

/// expand_statistics by one kernel, for 64, 128, 256 and 512 channels in.
bool warpgroup_expand_statistics(const Exec& exec, const ExpandShape& shape, DType dtype, const void* w,
                                 const ExpandMoments& moments, const BatchNormAffine& before,
                                 const StatisticsOutput& statistics, float* products);

/// From P in `arrays` the gradients of w and of the vectors of the norm after it, and arrays.operands(), by two
/// kernels, for 64, 128, 256 and 512 channels in.
bool warpgroup_expand_gradients(const Exec& exec, const ExpandShape& shape, DType dtype, const ExpandInputs& in,
                                const ExpandGradients& to, const ExpandBackwardArrays& arrays);

/// expand_sum by one kernel: the norm, the residual, relu and the mask are applied to the GEMM's float32 sums.
bool warpgroup_expand_sum(const Exec& exec, const ExpandShape& shape, DType dtype, const NormOperand& product,
                          const void* w, const NormOperand& residual, void* y, std::uint8_t* mask);

/// dz_before = relu'(z)·da, z of `x`'s norm, da as ExpandReduceOperands says; and of the values as they are stored the
/// sums of each part: partials (parts, 2, in), Σ dz_before and Σ dz_before·(x - mean). `parts`: how many it wrote, at
/// most expand_reduce_parts().
bool warpgroup_expand_reduce(const Exec& exec, const ExpandShape& shape, DType dtype, const void* centred,
                             const void* dz, const ExpandReduceOperands& operands, const NormOperand& x,
                             void* dz_before, float* partials, std::int64_t& parts);

}  // namespace bantam::kernels::cuda
