// Convolutions on the CPU, each by the kernels for its shape: a matrix product, our own, or a library's.
#include "bantam/kernels/conv/conv2d.h"

#include <algorithm>

#include "bantam/kernels/common/cpu/libraries.h"
#include "bantam/kernels/conv/conv2d_path.h"
#include "bantam/kernels/conv/conv2d_pointwise.h"
#include "bantam/kernels/conv/cpu/block_conv2d.h"
#include "bantam/kernels/conv/cpu/own_conv2d.h"

namespace bantam::kernels::cpu {
namespace {

bool is_empty(const Conv2dShape& s) { return s.x_elements() == 0 || s.y_elements() == 0; }

/// Chooses what computes a pass: the library's kernels, our own, or patches. Not for matrix products and empty shapes.
struct Path {
  Path(const Exec& exec, const Conv2dShape& shape, DType dtype, Conv2dPass pass) : conv{shape, dtype, nullptr} {
    check_conv2d_type(dtype);
    if (!prefers_own_conv2d(shape, pass)) {
      conv.kernels = Libraries::of(exec).conv2d(shape, pass, plan_conv2d(shape, dtype, pass));
    }
  }
  bool own() const { return conv.kernels == nullptr && has_own_conv2d(conv.shape); }
  BlockConv2d conv;
};

}  // namespace

void conv2d_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w, void* y,
                    Workspace workspace) {
  if (is_pointwise(shape)) {
    matmul(exec, pointwise_matmul(shape, Conv2dPass::forward), dtype, x, w, {.data = y, .dtype = dtype}, workspace);
    return;
  }
  if (is_empty(shape)) return;
  const Path path(exec, shape, dtype, Conv2dPass::forward);
  if (path.own()) {
    own_conv2d_forward(exec, shape, dtype, x, w, y, workspace);
  } else {
    block_conv2d_forward(exec, path.conv, x, w, y, workspace);
  }
}

void conv2d_grad_input(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* dy, const void* w, void* dx,
                       Workspace workspace) {
  if (is_pointwise(shape)) {
    matmul(exec, pointwise_matmul(shape, Conv2dPass::grad_input), dtype, dy, w, {.data = dx, .dtype = dtype},
           workspace);
    return;
  }
  if (is_empty(shape)) return;
  const Path path(exec, shape, dtype, Conv2dPass::grad_input);
  if (path.own()) {
    own_conv2d_grad_input(exec, shape, dtype, dy, w, dx, workspace);
  } else {
    block_conv2d_grad_input(exec, path.conv, dy, w, dx, workspace);
  }
}

void conv2d_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* dy,
                        const Conv2dWeightGradient& to, Workspace workspace) {
  if (is_pointwise(shape)) {
    matmul(exec, pointwise_matmul(shape, Conv2dPass::grad_weight), dtype, dy, x,
           {.data = to.dw, .dtype = DType::float32, .accumulate = to.accumulate}, workspace);
    return;
  }
  if (is_empty(shape)) {
    if (!to.accumulate) std::fill_n(to.dw, shape.w_elements(), 0.0f);
    return;
  }
  const Path path(exec, shape, dtype, Conv2dPass::grad_weight);
  if (path.own()) {
    own_conv2d_grad_weight(exec, shape, dtype, x, dy, to, workspace);
  } else {
    block_conv2d_grad_weight(exec, path.conv, x, dy, to, workspace);
  }
}

}  // namespace bantam::kernels::cpu
