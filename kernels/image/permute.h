// The axes of an array in another order.
#pragma once

#include <cstdint>
#include <span>

#include "bantam/base/dtype.h"
#include "bantam/base/shape.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// The axes of y, outermost first: extents of at least 2, and how far neighbours along each lie apart in x, in
/// elements. Axes of x that stay side by side are one.
struct PermuteShape {
  int axes = 0;
  std::int64_t extent[Shape::kMaxRank] = {};
  std::int64_t stride[Shape::kMaxRank] = {};

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < axes; ++axis) product *= extent[axis];
    return product;
  }
  /// The axis of y that is x's last one.
  int contiguous() const {
    int axis = axes - 1;
    while (axis > 0 && stride[axis] != 1) --axis;
    return axis;
  }
  /// Whether y has x's elements in x's order.
  bool is_view() const { return axes <= 1; }
};

/// The shape of y, whose axis i is axis order[i] of x. `order` has each of x's axes once; x has elements.
PermuteShape permute_shape(const Shape& x, std::span<const int> order);

/// y = x with its axes in another order; both `dtype` (float32, float16, bfloat16), as many elements. Values are
/// copied. y does not alias x, and is no view of it. The inverse order is the gradient. Asynchronous on CUDA;
/// deterministic. Throws ShapeError on CUDA for arrays that need 2^31 tiles or more.
using Permute = void(const Exec&, const PermuteShape&, DType dtype, const void* x, void* y);
BANTAM_DECLARE_KERNEL(Permute, permute);

}  // namespace bantam::kernels
