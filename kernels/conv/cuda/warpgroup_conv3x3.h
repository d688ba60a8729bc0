// 3x3 convolutions with wgmma (compute capability 9.0), which compute the moments of their output.
#pragma once

#include "bantam/kernels/common/cuda/reduce/part_moments.h"
#include "bantam/kernels/conv/warpgroup_conv3x3_parts.h"

namespace bantam::kernels::cuda {

/// y of a convolution that warpgroup_conv3x3_of supports, or as a gradient dx from x = dy. `moments`: of y,
/// shape.parts() parts; not computed where its pointer is null. x, w, y of `dtype`; nothing aliases. Deterministic.
/// False, with nothing done, where addresses (aligned to 16), device or driver are not supported.
bool warpgroup_conv3x3(const Exec& exec, const WarpgroupConv3x3& shape, DType dtype, const void* x, const void* w,
                       void* y, const PartMoments& moments);

}  // namespace bantam::kernels::cuda
