// What the CUDA kernels of the separable block take, and their scratch memory: pure functions of shapes, known also
// where there is no CUDA.
#pragma once

#include <cstddef>

#include "bantam/kernels/separable_block.h"

namespace bantam::kernels::cuda {

/// Bytes of the partial sums of the weight gradients.
inline std::size_t separable_block_backward_workspace_rule(const SeparableBlockShape&, DType) { return 0; }

}  // namespace bantam::kernels::cuda
