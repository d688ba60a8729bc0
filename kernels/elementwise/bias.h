// Adding a vector to every row, and its gradient: a sum over rows.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// y[r, c] = x[r, c] + b[c]; x, y (rows, channels), b (channels), all `dtype`. y may alias x.
using BiasForward = void(const Exec&, std::int64_t rows, std::int64_t channels, DType dtype, const void* x,
                         const void* b, void* y);
/// db[c] = Σ_r dy[r, c] in float32; overwritten, or added to where `accumulate`. Partial sums in a fixed order.
using BiasGrad = void(const Exec&, std::int64_t rows, std::int64_t channels, DType dtype, const void* dy, float* db,
                      bool accumulate, Workspace);
/// Scratch bytes of `bias_grad`; shape and target only.
std::size_t bias_grad_workspace_bytes(std::int64_t rows, std::int64_t channels, DeviceKind target);

BANTAM_DECLARE_KERNEL(BiasForward, bias_forward);
BANTAM_DECLARE_KERNEL(BiasGrad, bias_grad);

}  // namespace bantam::kernels
