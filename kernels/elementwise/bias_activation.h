// A vector added to every row, and an activation of the sum, in one pass; and both gradients in one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/elementwise/activation.h"

namespace bantam::kernels {

/// Arrays (rows, channels).
struct BiasShape {
  std::int64_t rows = 0, channels = 0;

  std::int64_t elements() const { return rows * channels; }
};

/// y[r, c] = f(x[r, c] + b[c]); x, y (rows, channels) and b (channels) of `dtype` (float32, float16, bfloat16),
/// computed in float32 and rounded once. f is not `none`. `mask` gets the bits of f' (masked_activation.h) of a
/// piecewise f unless it is null; of others it is null. y may alias x.
using BiasActivationForward = void(const Exec&, ActivationFunction f, const BiasShape&, DType dtype, const void* x,
                                   const void* b, void* y, std::uint8_t* mask);

/// The gradient reads dy, and from forward x and b where f's gradient reads its input (`activation_grad_reads_input`),
/// else y; of a piecewise f the mask in place of y, where there is one.
struct BiasActivationGradInputs {
  const void* dy = nullptr;
  const std::uint8_t* mask = nullptr;
  const void *x = nullptr, *b = nullptr;
  const void* y = nullptr;
};
struct BiasActivationGradients {
  void* dx = nullptr;       ///< `dtype`; may alias dy
  float* db = nullptr;      ///< float32 (channels)
  bool accumulate = false;  ///< db is added to
};
/// dx = dy·f', and db[c] = Σ_r dx[r, c] of the values before dx is rounded. Partial sums in a fixed order, in the pass
/// that writes dx.
using BiasActivationGrad = void(const Exec&, ActivationFunction f, const BiasShape&, DType dtype,
                                const BiasActivationGradInputs&, const BiasActivationGradients&, Workspace);
/// Scratch bytes of `bias_activation_grad`; shape and target only.
std::size_t bias_activation_grad_workspace_bytes(const BiasShape& shape, DeviceKind target);

/// d = f'(x + b), of an f whose gradient reads its input (activation_grad_reads_input); computed in float32, rounded
/// once. d may alias x.
using BiasActivationSlopes = void(const Exec&, ActivationFunction f, const BiasShape&, DType dtype, const void* x,
                                  const void* b, void* d);

BANTAM_DECLARE_KERNEL(BiasActivationForward, bias_activation_forward);
BANTAM_DECLARE_KERNEL(BiasActivationGrad, bias_activation_grad);
BANTAM_DECLARE_KERNEL(BiasActivationSlopes, bias_activation_slopes);

}  // namespace bantam::kernels
