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

namespace cpu {
Add add;
Scale scale;
Cast cast;
Fill fill;
}  // namespace cpu
namespace cuda {
Add add;
Scale scale;
Cast cast;
Fill fill;
}  // namespace cuda
namespace meta {
Add add;
Scale scale;
Cast cast;
Fill fill;
}  // namespace meta

}  // namespace bantam::kernels
