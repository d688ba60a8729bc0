// Moments of the parts of a tensor's rows, which kernels compute of the tensor they write; and the merge of all parts
// to a batch norm's statistics.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/exec.h"
#include "bantam/kernels/common/moment_parts.h"
#include "bantam/kernels/common/statistics_output.h"

namespace bantam::kernels::cuda {

/// Where a kernel writes them. `moments` (parts, 3, channels): an origin, the mean relative to it, and Σ of squared
/// differences from the mean; `counts` (parts): values a channel, the same for all channels of a part.
struct PartMoments {
  float* moments = nullptr;
  float* counts = nullptr;
  std::int64_t parts = 0, channels = 0;

  /// Cut from the start of a workspace of part_moments_bytes.
  static PartMoments at(void* workspace, std::int64_t parts, std::int64_t channels) {
    float* const begin = static_cast<float*>(workspace);
    return {begin, begin + 3 * parts * channels, parts, channels};
  }
};

/// Mean, inv_std and running statistics of all parts together, in a fixed order and in double. Counts may be 0.
void merge_part_moments(const Exec& exec, const PartMoments& parts, const StatisticsOutput& statistics);

}  // namespace bantam::kernels::cuda
