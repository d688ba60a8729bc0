// Which axes a permutation has: those of one element go, and those that stay side by side become one.
#include "bantam/kernels/image/permute.h"

namespace bantam::kernels {

PermuteShape permute_shape(const Shape& x, std::span<const int> order) {
  std::int64_t strides[Shape::kMaxRank], stride = 1;
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= x[axis];
  }
  PermuteShape shape;
  for (const int axis : order) {
    if (x[axis] == 1) continue;
    const int last = shape.axes - 1;
    if (last >= 0 && shape.stride[last] == strides[axis] * x[axis]) {
      shape.extent[last] *= x[axis];
      shape.stride[last] = strides[axis];
      continue;
    }
    shape.extent[shape.axes] = x[axis];
    shape.stride[shape.axes++] = strides[axis];
  }
  return shape;
}

}  // namespace bantam::kernels
