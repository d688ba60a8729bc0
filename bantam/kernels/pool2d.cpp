// Pooling: its work and traffic.
#include "bantam/kernels/pool2d.h"

namespace bantam::kernels {

std::int64_t pool2d_flops(const Pool2dShape& shape) { return shape.y_elements() * shape.window_h * shape.window_w; }

std::int64_t pool2d_bytes(const Pool2dShape& shape, DType dtype) {
  return (shape.x_elements() + shape.y_elements()) * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace bantam::kernels
