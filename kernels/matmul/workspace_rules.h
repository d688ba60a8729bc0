// Workspace of matrix products on CUDA.
#pragma once

#include <cstdint>

#include "bantam/kernels/matmul/matmul.h"

namespace bantam::kernels::cuda {

inline constexpr std::int64_t kMiB = 1 << 20;

/// 4 MiB, or NVIDIA's advised 32 MiB for products of 4·10^9 operations and more. Algorithms that need more are not
/// eligible.
inline std::size_t matmul_workspace_rule(const MatmulShape& shape) {
  return static_cast<std::size_t>(matmul_flops(shape) < 4'000'000'000 ? 4 * kMiB : 32 * kMiB);
}

}  // namespace bantam::kernels::cuda
