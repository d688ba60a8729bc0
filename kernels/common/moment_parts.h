// Memory of the moments that CUDA kernels write of their output, part by part
// (kernels/common/cuda/reduce/part_moments.h); known also where there is no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bantam::kernels::cuda {

/// (parts, 3, channels) float32 moments and (parts) counts.
inline std::size_t part_moments_bytes(std::int64_t parts, std::int64_t channels) {
  return static_cast<std::size_t>(parts * (3 * channels + 1)) * sizeof(float);
}

}  // namespace bantam::kernels::cuda
