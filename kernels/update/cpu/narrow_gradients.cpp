// Widening in place on the CPU: from a span's end, so that no value is overwritten before it was read.
#include "bantam/kernels/update/narrow_gradients.h"

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/update/update.h"

namespace bantam::kernels::cpu {

void widen_gradients(const Exec&, float* gradient, const NarrowGradients& narrow, DType dtype) {
  float values[kWeightBlockSize];
  for (std::int32_t r = 0; r < narrow.count; ++r) {
    const auto [begin, end] = narrow.ranges[r];
    float* place = gradient + begin * kWeightBlockSize;
    for (std::int64_t weight_block = end - begin - 1; weight_block >= 0;
         --weight_block) {  // its place overlaps halves 2·weight_block on
      widen(dtype, element(static_cast<const void*>(place), dtype, weight_block * kWeightBlockSize), values,
            kWeightBlockSize);
      widen(values, place + weight_block * kWeightBlockSize, kWeightBlockSize);
    }
  }
}

}  // namespace bantam::kernels::cpu
