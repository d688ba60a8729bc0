// Gradients that lie in the arena in the half type their kernel made: in the first half of their float32 place, until
// the update reads them, or somebody needs them wide.
#pragma once

#include <cstdint>
#include <limits>

#include "bantam/base/dtype.h"
#include "bantam/base/philox.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// Spans of an arena with narrow gradients, at most kMost; small enough to be an argument of a kernel.
struct NarrowGradients {
  static constexpr std::int32_t kMost = 32;
  static constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();
  /// Weight blocks [begin, end) of one span, which its elements fill.
  struct Range {
    std::int32_t begin = kNone, end = kNone;
  };

  Range ranges[kMost];  ///< ascending; those after the last are empty
  std::int32_t count = 0;

  /// Throws Error where there are kMost already.
  void add(Range range);
  /// Whether the span that begins at weight block `begin` was there, and is no more.
  bool remove(std::int64_t begin);
  bool contain(std::int64_t begin) const { return begin_of(begin) == begin; }

  /// First weight block of the narrow span that holds `weight_block`; -1: it is in none.
  BANTAM_HOST_DEVICE std::int32_t begin_of(std::int64_t weight_block) const {
    if (count == 0) return -1;
    std::int32_t at = 0;
    for (std::int32_t step = kMost / 2; step > 0; step /= 2) {
      if (ranges[at + step].begin <= weight_block) at += step;
    }
    return weight_block >= ranges[at].begin && weight_block < ranges[at].end ? ranges[at].begin : -1;
  }
};

/// Makes the gradients float32, in place and exactly: of n values of `dtype` (float16, bfloat16) at a span's begin,
/// n floats there. `gradient` is the arena's slot. For whoever reads gradients but the update. Asynchronous on CUDA.
using WidenGradients = void(const Exec&, float* gradient, const NarrowGradients&, DType dtype);

BANTAM_DECLARE_KERNEL(WidenGradients, widen_gradients);

}  // namespace bantam::kernels
