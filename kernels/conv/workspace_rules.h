// How much scratch memory CUDA matmul and conv2d may use: pure functions of shapes, known also where there is no CUDA.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/conv/few_channels_parts.h"
#include "bantam/kernels/conv/image_parts.h"
#include "bantam/kernels/conv/image_patches.h"
#include "bantam/kernels/matmul/workspace_rules.h"

namespace bantam::kernels::cuda {

/// The arrays of a convolution's workspace, in their order in memory.
struct ConvWorkspace {
  std::size_t weights_bytes =
      0;  ///< weights in another order (grad_input), or dw before it is added or widened (grad_weight)
  std::size_t patches_bytes = 0;  ///< cuDNN's workspace, patches for our own path, or partial sums of dw
  std::size_t matmul_bytes = 0;   ///< cuBLASLt's, on our own path
  std::size_t total() const { return weights_bytes + patches_bytes + matmul_bytes; }
};

/// Patches or cuDNN's workspace: twice the bytes of x and y, within 4 and 32 MiB (more only if one row of patches is
/// longer).
inline ConvWorkspace conv2d_workspace_rule(const Conv2dShape& s, DType dtype, Conv2dPass pass) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t wanted = 2 * size * (s.x_elements() + s.y_elements());
  const std::int64_t longest_row = size * s.kernel_h * s.kernel_w * std::max(s.in_channels, s.out_channels) / s.groups;
  ConvWorkspace rule;
  if (pass != Conv2dPass::forward) rule.weights_bytes = aligned_bytes(size * s.w_elements());
  rule.patches_bytes = aligned_bytes(std::max(std::clamp(wanted, 4 * kMiB, 32 * kMiB), longest_row));
  if (pass == Conv2dPass::grad_weight && is_image_convolution(s, dtype)) {
    rule.patches_bytes = std::max(rule.patches_bytes, aligned_bytes(image_grad_weight_bytes(s)));
  }
  if (pass == Conv2dPass::grad_weight && prefers_few_channels_kernel(s, dtype)) {
    rule.patches_bytes = std::max(rule.patches_bytes, aligned_bytes(few_channels_grad_weight_bytes(s)));
  }
  rule.matmul_bytes =
      static_cast<std::size_t>((pass != Conv2dPass::grad_input && cuts_patches(s, dtype) ? 32 : 4) * kMiB);
  return rule;
}

}  // namespace bantam::kernels::cuda
