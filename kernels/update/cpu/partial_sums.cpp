// Partial sums on the CPU, added in the order of the parts.
#include "bantam/kernels/update/partial_sums.h"

namespace bantam::kernels::cpu {

void add_up_parts(const Exec&, const PartialSums& partial) {
  for (std::int32_t a = 0; a < partial.count; ++a) {
    const PartialSums::Array& array = partial.arrays[a];
    for (std::int32_t i = 0; i < array.elements; ++i) {
      float sum = 0;
      for (std::int32_t part = 0; part < array.parts; ++part)
        sum += array.from[static_cast<std::int64_t>(part) * array.stride + i];
      array.to[i] = array.accumulate ? array.to[i] + sum : sum;
    }
  }
}

}  // namespace bantam::kernels::cpu
