// How the CPU's separable block is cut into parts of images, and the room that a part has: by shape and type only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"
#include "bantam/kernels/matmul/matmul_plan.h"
#include "bantam/kernels/separable/separable_block.h"

namespace bantam::kernels::cpu {

/// Workspace of a pass: weights as floats (half types), then a slot a part for the inner tensors of one image, then
/// (backward) a set of partial sums a part. All floats.
struct SeparableBlockPlan {
  SeparableBlockPlan(const SeparableBlockShape& shape, DType dtype, SeparableBlockPass pass) : s(shape) {
    constexpr std::int64_t kMaxParts = 32, kSlotsBytes = 8 << 20;
    const bool half = is_half(dtype);
    weight_bytes = half ? aligned_bytes((s.depthwise_elements() + s.pointwise_elements() + s.out_channels) * 4) : 0;
    image_bytes = half ? aligned_bytes(s.in_h * s.in_w * s.in_channels * 4) : 0;
    middle_bytes = aligned_bytes(pixels() * s.in_channels * 4);
    sums_bytes = aligned_bytes(pixels() * s.out_channels * 4);
    if (pass == SeparableBlockPass::backward) {
      d_middle_bytes = middle_bytes;
      partial_bytes = aligned_bytes((s.depthwise_elements() + s.pointwise_elements() + s.out_channels) * 4);
    }
    const std::int64_t fitting = kSlotsBytes / static_cast<std::int64_t>(slot_bytes() + partial_bytes);
    const std::int64_t wanted = std::max<std::int64_t>(2, std::min(kMaxParts, fitting));
    images = std::max<std::int64_t>(1, ceil_div(s.batch, wanted));
    parts = ceil_div(s.batch, images);
  }

  std::int64_t pixels() const { return s.conv_h() * s.conv_w(); }  ///< of an image, before pooling
  std::size_t slot_bytes() const { return image_bytes + middle_bytes + sums_bytes + d_middle_bytes; }
  std::size_t workspace_bytes() const {
    return weight_bytes + static_cast<std::size_t>(parts) * (slot_bytes() + partial_bytes);
  }
  /// The depthwise convolution of one image.
  DepthwiseConv2dShape depthwise() const {
    return {.batch = 1,
            .in_h = s.in_h,
            .in_w = s.in_w,
            .channels = s.in_channels,
            .kernel_h = 3,
            .kernel_w = 3,
            .pad_top = s.pad_top,
            .pad_bottom = s.pad_bottom,
            .pad_left = s.pad_left,
            .pad_right = s.pad_right};
  }

  SeparableBlockShape s;
  std::int64_t images = 1;  ///< of a part; the last has fewer
  std::int64_t parts = 0;
  std::size_t weight_bytes = 0;
  std::size_t image_bytes = 0;     ///< x of an image (later dx), where it is widened
  std::size_t middle_bytes = 0;    ///< the depthwise output
  std::size_t sums_bytes = 0;      ///< the pointwise output, or its gradient
  std::size_t d_middle_bytes = 0;  ///< backward: the gradient of the depthwise output
  std::size_t partial_bytes = 0;   ///< backward: d_depthwise, d_pointwise transposed, d_bias
};

}  // namespace bantam::kernels::cpu
