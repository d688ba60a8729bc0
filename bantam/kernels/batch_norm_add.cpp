// The sum over batch norms: its traffic.
#include "bantam/kernels/batch_norm_add.h"

namespace bantam::kernels {

std::int64_t batch_norm_add_bytes(const BatchNormShape& shape, DType dtype) {
  return 3 * shape.rows * shape.channels * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace bantam::kernels
