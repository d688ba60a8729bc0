// Plain element-wise work: add, scale, cast, fill.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// y = a + b, all `dtype` (float32, float16, bfloat16), summed in float32. y may alias a or b.
using Add = void(const Exec&, std::int64_t count, DType dtype, const void* a, const void* b, void* y);
/// y = factor·x. y may alias x.
using Scale = void(const Exec&, std::int64_t count, DType dtype, float factor, const void* x, void* y);
/// y = x in another type: any of float32, float16, bfloat16, uint8 to any of float32, float16, bfloat16. Round to
/// nearest even.
using Cast = void(const Exec&, std::int64_t count, DType from, const void* x, DType to, void* y);
/// Every element = value, converted to `dtype` (floating types).
using Fill = void(const Exec&, std::int64_t count, DType dtype, float value, void* y);

BANTAM_DECLARE_KERNEL(Add, add);
BANTAM_DECLARE_KERNEL(Scale, scale);
BANTAM_DECLARE_KERNEL(Cast, cast);
BANTAM_DECLARE_KERNEL(Fill, fill);

}  // namespace bantam::kernels
