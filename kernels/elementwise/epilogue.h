// An epilogue follows a convolution or a matrix product in inference, in one pass: bias, a sum, an activation.
#pragma once

#include <cstdint>

#include "bantam/base/activation.h"
#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// y = f(z + bias + residual) of what an op computes, z (rows, channels). All of the op's type.
struct Epilogue {
  const void* bias = nullptr;      ///< (channels), or null
  const void* residual = nullptr;  ///< like y, or null
  ActivationFunction f;
  bool empty() const { return bias == nullptr && residual == nullptr && f.kind == Activation::none; }
};

/// The epilogue of what `y` (rows, channels; float32, float16 or bfloat16) has, in place. Sums are float32, rounded
/// once. The residual is not y.
using EpilogueForward = void(const Exec&, std::int64_t rows, std::int64_t channels, DType dtype, const Epilogue&,
                             void* y);
BANTAM_DECLARE_KERNEL(EpilogueForward, epilogue_forward);

}  // namespace bantam::kernels
