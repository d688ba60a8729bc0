// Softmax over the rows of an array, and its gradient.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// y[r, c] = e^(x[r, c] - top) / Σ e^(x[r, ·] - top), top the row's largest; x, y (rows, columns) of `dtype` (float32,
/// float16, bfloat16), computed in float32. A row with NaN or +∞ is NaN. y may alias x.
using SoftmaxForward = void(const Exec&, std::int64_t rows, std::int64_t columns, DType dtype, const void* x, void* y);
/// dx = y·(dy - Σ y·dy), the sum over the row. dx may alias dy.
using SoftmaxGrad = void(const Exec&, std::int64_t rows, std::int64_t columns, DType dtype, const void* y,
                         const void* dy, void* dx);
BANTAM_DECLARE_KERNEL(SoftmaxForward, softmax_forward);
BANTAM_DECLARE_KERNEL(SoftmaxGrad, softmax_grad);

}  // namespace bantam::kernels
