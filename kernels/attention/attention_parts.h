// How attention is cut, by shapes alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/attention/attention.h"

namespace bantam::kernels {

/// Tokens up to which a head's scores are one tile: gradients of its queries are then complete after one pass.
inline constexpr std::int64_t kWholeHeadTokens = 256;

/// The longest row of a head.
inline constexpr std::int64_t kMostHeadSize = 128;

/// Parts of a CPU backward of half types with more tokens than that; each has float32 sums of a head's dq in the
/// workspace.
inline std::int64_t attention_sum_parts(const AttentionShape& shape) {
  return std::min<std::int64_t>(shape.batch * shape.heads, 32);
}

}  // namespace bantam::kernels
