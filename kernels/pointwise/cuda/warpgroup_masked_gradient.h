// masked_gradient in one wgmma kernel (compute capability 9.0).
#pragma once

#include "bantam/kernels/pointwise/masked_gradient_parts.h"

namespace bantam::kernels::cuda {

/// dz as masked_gradient.h says, of a shape that masked_gradient_fits, and the sums of each part: partials (parts,
/// in), MaskedGradientTiles(shape).parts() of them. False, with nothing done, where addresses, device or driver are not
/// supported.
bool warpgroup_masked_gradient(const Exec& exec, const PointwiseShape& shape, DType dtype, const void* dy,
                               const void* w, const void* addend, const std::uint8_t* mask, void* dz, float* partials);

}  // namespace bantam::kernels::cuda
