// Our own convolutions on the CPU: which shapes they compute, and their workspace, by shape and type only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/conv/packed_plan.h"
#include "bantam/kernels/conv/weight_gradient_plan.h"

namespace bantam::kernels::cpu {

/// Whether our own kernels compute a convolution; grouped ones are oneDNN's, or by patches.
inline bool has_own_conv2d(const Conv2dShape& s) { return s.groups == 1; }

/// Half types are widened to float some images at a time. Workspace: these images and the widened weights, then what a
/// pass over so many images needs: packed weights and room for parts.
struct OwnConv2dPlan {
  std::int64_t block = 0;         ///< images at a time
  std::size_t weights_bytes = 0;  ///< widened
  std::size_t x_bytes = 0, y_bytes = 0;
  std::size_t packed_bytes = 0;
  std::size_t room_bytes = 0;
  std::size_t workspace_bytes() const { return weights_bytes + x_bytes + y_bytes + packed_bytes + room_bytes; }
};

/// The bytes that the kernels of a pass need on float images, beside packed weights.
inline std::size_t own_room_bytes(const Conv2dShape& s, Conv2dPass pass) {
  if (pass == Conv2dPass::forward) return plan_packed(forward_window(s)).workspace_bytes();
  if (pass == Conv2dPass::grad_weight) return plan_weight_gradient(forward_window(s)).workspace_bytes();
  std::size_t most = 0;
  for_each_phase(s, [&](const InputPhase& phase) {
    if (!phase.is_zero()) most = std::max(most, plan_packed(gradient_window(s, phase)).workspace_bytes());
  });
  return most;
}

inline OwnConv2dPlan plan_own_conv2d(const Conv2dShape& s, DType dtype, Conv2dPass pass) {
  constexpr std::int64_t kWidened = 8 << 20;  // bytes of images
  OwnConv2dPlan plan{.block = s.batch};
  const bool weights = pass != Conv2dPass::grad_weight;
  if (weights) plan.packed_bytes = aligned_bytes(s.w_elements() * 4);
  Conv2dShape block = s;
  if (is_half(dtype)) {
    const std::int64_t x_image = s.x_elements() / s.batch * 4, y_image = s.y_elements() / s.batch * 4;
    block.batch = plan.block = std::clamp<std::int64_t>(kWidened / (x_image + y_image), 1, s.batch);
    if (weights) plan.weights_bytes = plan.packed_bytes;
    plan.x_bytes = aligned_bytes(plan.block * x_image);
    plan.y_bytes = aligned_bytes(plan.block * y_image);
  }
  plan.room_bytes = own_room_bytes(block, pass);
  block.batch = s.batch % plan.block;
  if (block.batch > 0) plan.room_bytes = std::max(plan.room_bytes, own_room_bytes(block, pass));
  return plan;
}

}  // namespace bantam::kernels::cpu
