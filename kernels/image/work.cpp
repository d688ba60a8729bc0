// Work of padding, resizing, depth to space and permutations: what is read and written, once.
#include "bantam/kernels/common/work.h"

#include <algorithm>

#include "bantam/kernels/image/depth_to_space.h"
#include "bantam/kernels/image/pad2d.h"
#include "bantam/kernels/image/permute.h"
#include "bantam/kernels/image/resize2d.h"

namespace bantam::kernels::work {
namespace {

/// Cropped pixels are read by nobody.
KernelWork forward_pass(const Pad2dShape& s, DType dtype) {
  return {.bytes = bytes_of(std::min(s.x_elements(), s.y_elements()) + s.y_elements(), dtype)};
}
KernelWork pass(const Pad2dShape& s, DType dtype) {
  return {.bytes = bytes_of(s.x_elements() + s.y_elements(), dtype)};
}
KernelWork pass(const Resize2dShape& s, DType dtype) {
  return {.bytes = bytes_of(s.x_elements() + s.y_elements(), dtype)};
}
KernelWork pass(const DepthToSpaceShape& s, DType dtype) { return {.bytes = 2 * bytes_of(s.elements(), dtype)}; }

}  // namespace

void pad2d_forward(const Exec& exec, const Pad2dShape& s, DType dtype, const void*, void*) {
  note(exec, "pad2d_forward", forward_pass(s, dtype));
}
void pad2d_grad_input(const Exec& exec, const Pad2dShape& s, DType dtype, const void*, void*) {
  note(exec, "pad2d_grad_input", pass(s, dtype));
}
void resize2d_forward(const Exec& exec, const Resize2dShape& s, DType dtype, const void*, void*) {
  note(exec, "resize2d_forward", pass(s, dtype));
}
void resize2d_grad_input(const Exec& exec, const Resize2dShape& s, DType dtype, const void*, void*) {
  note(exec, "resize2d_grad_input", pass(s, dtype));
}
void depth_to_space(const Exec& exec, const DepthToSpaceShape& s, DType dtype, const void*, void*) {
  note(exec, "depth_to_space", pass(s, dtype));
}
void space_to_depth(const Exec& exec, const DepthToSpaceShape& s, DType dtype, const void*, void*) {
  note(exec, "space_to_depth", pass(s, dtype));
}
void permute(const Exec& exec, const PermuteShape& s, DType dtype, const void*, void*) {
  note(exec, "permute", {.bytes = 2 * bytes_of(s.elements(), dtype)});
}

}  // namespace bantam::kernels::work
