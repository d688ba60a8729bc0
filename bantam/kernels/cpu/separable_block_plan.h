// How the CPU's separable block is cut into runs of images whose inner tensors stay in the cache: by shape and type
// only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/bias.h"
#include "bantam/kernels/depthwise_conv2d.h"
#include "bantam/kernels/matmul.h"
#include "bantam/kernels/separable_block.h"
#include "bantam/kernels/workspace_layout.h"

namespace bantam::kernels::cpu {

/// A run of `images` images, and the bytes of what lies between the passes over it.
struct SeparableBlockPlan {
  SeparableBlockPlan(const SeparableBlockShape& shape, DType dtype) : s(shape), dtype(dtype) {
    constexpr std::int64_t kInnerBytes = 2 << 20;
    const std::int64_t image = s.conv_h() * s.conv_w() * (s.in_channels + s.out_channels) * size();
    images = std::clamp<std::int64_t>(kInnerBytes / image, 1, std::max<std::int64_t>(s.batch, 1));
  }
  std::int64_t size() const { return static_cast<std::int64_t>(size_of(dtype)); }
  std::int64_t pixels(std::int64_t count) const { return count * s.conv_h() * s.conv_w(); }

  DepthwiseConv2dShape depthwise(std::int64_t count) const {
    return {.batch = count,
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
  /// z (pixels, out_channels) = mid · w_pointwiseᵀ.
  MatmulShape pointwise(std::int64_t count) const {
    return {.m = pixels(count), .n = s.out_channels, .k = s.in_channels, .transpose_b = true};
  }
  /// d_mid = dz · w_pointwise.
  MatmulShape pointwise_grad_input(std::int64_t count) const {
    return {.m = pixels(count), .n = s.in_channels, .k = s.out_channels};
  }
  /// d_pointwise = dzᵀ · mid.
  MatmulShape pointwise_grad_weight(std::int64_t count) const {
    return {.m = s.out_channels, .n = s.in_channels, .k = pixels(count), .transpose_a = true};
  }

  std::size_t middle_bytes() const { return aligned_bytes(pixels(images) * s.in_channels * size()); }
  std::size_t sums_bytes() const { return aligned_bytes(pixels(images) * s.out_channels * size()); }
  /// Of the largest kernel that is called on a run; the last run may be shorter, and is cut otherwise.
  std::size_t inner_bytes(bool backward) const {
    std::size_t most = 0;
    for (const std::int64_t count : {images, s.batch % images}) {
      if (count == 0) continue;
      const auto matmul_bytes = [&](const MatmulShape& product, DType out) {
        return matmul_workspace_bytes(product, dtype, out, DeviceKind::cpu);
      };
      most = std::max(most, matmul_bytes(pointwise(count), dtype));
      if (!backward) continue;
      most = std::max({most, matmul_bytes(pointwise_grad_input(count), dtype),
                       matmul_bytes(pointwise_grad_weight(count), DType::float32),
                       depthwise_conv2d_grad_weight_workspace_bytes(depthwise(count), dtype, DeviceKind::cpu),
                       s.bias ? bias_grad_workspace_bytes(pixels(count), s.out_channels, DeviceKind::cpu) : 0});
    }
    return most;
  }
  std::size_t forward_bytes() const { return middle_bytes() + sums_bytes() + inner_bytes(false); }
  std::size_t backward_bytes() const { return 2 * middle_bytes() + sums_bytes() + inner_bytes(true); }

  SeparableBlockShape s;
  DType dtype;
  std::int64_t images = 1;
};

}  // namespace bantam::kernels::cpu
