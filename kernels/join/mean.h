// The mean of several arrays, in one pass.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// Inputs of a mean, at most.
inline constexpr int kMostAveraged = 64;

struct MeanInputs {
  const void* data[kMostAveraged] = {};
  int count = 0;  ///< 1 to kMostAveraged
};

/// y = (input 0 + input 1 + …) / count, `elements` of `dtype` (float32, float16, bfloat16), summed in float32 in the
/// inputs' order and rounded once. y may alias an input.
using MeanOf = void(const Exec&, std::int64_t elements, DType dtype, const MeanInputs& inputs, void* y);
BANTAM_DECLARE_KERNEL(MeanOf, mean_of);

}  // namespace bantam::kernels
