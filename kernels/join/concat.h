// Arrays side by side along the last axis, and their parts again: the gradient.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/base/philox.h"  // BANTAM_HOST_DEVICE
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// Inputs of one call, at most; an op with more makes further calls.
inline constexpr int kMostJoined = 64;

/// Which columns of a (rows, channels) array are whose: narrow array i, (rows, begin[i + 1] - begin[i]), has the
/// columns from begin[i] on. One call covers the columns from begin[0] to begin[count], 1 <= count <= kMostJoined.
struct JoinShape {
  std::int64_t rows = 0, channels = 0;
  int count = 0;
  std::int64_t begin[kMostJoined + 1] = {};

  BANTAM_HOST_DEVICE std::int64_t width(int i) const { return begin[i + 1] - begin[i]; }
};

struct ConcatInputs {
  const void* data[kMostJoined] = {};
};
/// A gradient (rows, channels): x, or x + other in float32, rounded once.
struct SplitInput {
  const void* x = nullptr;
  const void* other = nullptr;  ///< null: nothing
};
/// Where the parts go: data[i] = part i, or part i + addend[i] in float32, rounded once. Null data: nobody wants it.
/// Addends may be null (none) or data[i] itself.
struct SplitOutputs {
  void* data[kMostJoined] = {};
  const void* addend[kMostJoined] = {};
};

/// y[r, begin[i] + c] = input i [r, c]; y (rows, channels), all `dtype` (float32, float16, bfloat16). y aliases none.
using Concat = void(const Exec&, const JoinShape& shape, DType dtype, const ConcatInputs& inputs, void* y);
/// The way back: part i of the input to outputs.data[i].
using Split = void(const Exec&, const JoinShape& shape, DType dtype, const SplitInput& input,
                   const SplitOutputs& outputs);
BANTAM_DECLARE_KERNEL(Concat, concat);
BANTAM_DECLARE_KERNEL(Split, split);

}  // namespace bantam::kernels
