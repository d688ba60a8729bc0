// Size of dropout's mask.
#include "bantam/kernels/elementwise/dropout.h"

namespace bantam::kernels {

std::size_t dropout_mask_bytes(const DropoutShape& shape) {
  return static_cast<std::size_t>(shape.samples * ((shape.row_draws() + 31) / 32)) * sizeof(std::uint32_t);
}

}  // namespace bantam::kernels
