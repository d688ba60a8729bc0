// Widening in place on the CPU: from a span's end, so that no value is overwritten before it was read.
#include "bantam/kernels/update/narrow_gradients.h"

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/update/update.h"

namespace bantam::kernels::cpu {

void widen_gradients(const Exec&, float* gradient, const NarrowGradients& narrow, DType dtype) {
  float values[kSpanGranule];
  for (std::int32_t r = 0; r < narrow.count; ++r) {
    const auto [begin, end] = narrow.ranges[r];
    float* place = gradient + begin * kSpanGranule;
    for (std::int64_t granule = end - begin - 1; granule >= 0; --granule) {  // its place overlaps halves 2·granule on
      widen(dtype, element(static_cast<const void*>(place), dtype, granule * kSpanGranule), values, kSpanGranule);
      widen(values, place + granule * kSpanGranule, kSpanGranule);
    }
  }
}

}  // namespace bantam::kernels::cpu
