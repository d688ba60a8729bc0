// Which of the CPU's kernels compute a convolution where the build has oneDNN: a rule on the shape, from measurements,
// and the workspace, which is the same in a build without.
#pragma once

#include "bantam/kernels/conv/conv2d_plan.h"
#include "bantam/kernels/conv/own_conv2d_plan.h"

namespace bantam::kernels::cpu {

/// Whether our own kernels are preferred to oneDNN's: where images are small beside their weights, of which our kernels
/// pack and add up fewer copies, and for weight gradients of wide windows on images. docs/PERFORMANCE.md has the
/// figures.
inline bool prefers_own_conv2d(const Conv2dShape& s, Conv2dPass pass) {
  if (!has_own_conv2d(s)) return false;
  const std::int64_t pixels = s.out_h() * s.out_w();
  if (pass == Conv2dPass::forward) return pixels <= 16;
  if (pass == Conv2dPass::grad_input) return false;
  return pixels <= 64 || (s.in_channels <= 4 && s.kernel_w >= 5);
}

/// The workspace bytes of a pass on the CPU; the convolution is neither a matrix product nor empty.
inline std::size_t conv2d_workspace_rule(const Conv2dShape& s, DType dtype, Conv2dPass pass) {
  const std::size_t own = has_own_conv2d(s) ? plan_own_conv2d(s, dtype, pass).workspace_bytes() : 0;
  if (prefers_own_conv2d(s, pass)) return own;
  return std::max(own, plan_conv2d(s, dtype, pass).workspace_bytes());
}

}  // namespace bantam::kernels::cpu
