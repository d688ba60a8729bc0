// Elementwise products of two arrays of one shape, and both gradients in one pass.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// y = a·b, `count` elements of `dtype` (float32, float16, bfloat16). y may alias a or b.
using Multiply = void(const Exec&, std::int64_t count, DType dtype, const void* a, const void* b, void* y);

/// The gradients are computed from these: a is read for db, b for da, each only there.
struct MultiplyInputs {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* dy = nullptr;
};
/// da = dy·b and db = dy·a; one of them may be null: nobody wants it. Either may alias dy.
struct MultiplyGradients {
  void* da = nullptr;
  void* db = nullptr;
};
using MultiplyGrad = void(const Exec&, std::int64_t count, DType dtype, const MultiplyInputs& inputs,
                          const MultiplyGradients& to);
BANTAM_DECLARE_KERNEL(Multiply, multiply);
BANTAM_DECLARE_KERNEL(MultiplyGrad, multiply_grad);

}  // namespace bantam::kernels
