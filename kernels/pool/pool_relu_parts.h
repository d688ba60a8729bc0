// How the gradient of max pooling of a relu is computed: on CUDA in one pass where windows are pairs of rows and
// columns, else in two, with an array of y's size between them.
#pragma once

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/elementwise/bias_activation.h"
#include "bantam/kernels/pool/pool2d.h"

namespace bantam::kernels {

/// Whether every position is in one window of 2x2, and 32 bits count them.
inline bool pools_pairs(const Pool2dShape& s) {
  return s.window_h == 2 && s.window_w == 2 && s.stride_h == 2 && s.stride_w == 2 && s.dilation_h == 1 &&
         s.dilation_w == 1 && s.pad_top == 0 && s.pad_left == 0 && s.in_h == 2 * s.out_h() && s.in_w == 2 * s.out_w() &&
         s.y_elements() < (std::int64_t{1} << 31);
}

/// The pooled array, whose rows are windows.
inline BiasShape windows_of(const Pool2dShape& s) { return {s.batch * s.out_h() * s.out_w(), s.channels}; }

/// The arrays of the workspace, in their order in memory.
struct PoolReluWorkspace {
  std::size_t masked_bytes = 0;  ///< dy·relu', where it is written
  std::size_t sums_bytes = 0;    ///< partial sums

  static PoolReluWorkspace of(const Pool2dShape& s, DType dtype, DeviceKind target) {
    const bool one_pass = target == DeviceKind::cuda && pools_pairs(s);
    return {one_pass ? 0 : aligned_bytes(s.y_elements() * static_cast<std::int64_t>(size_of(dtype))),
            bias_activation_grad_workspace_bytes(windows_of(s), target)};
  }
  Workspace sums(Workspace all) const { return {static_cast<char*>(all.data) + masked_bytes, sums_bytes}; }
};

}  // namespace bantam::kernels
