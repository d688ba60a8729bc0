// Resizing of images, NHWC: the nearest pixel, or two by two pixels blended.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// Where output o of `out` lies among inputs of `in`, in float32: nearest: ⌊o·(in/out)⌋. bilinear: (o + 1/2)·(in/out) -
/// 1/2, at least 0. align_corners: o·(in - 1)/(out - 1). As PyTorch's interpolate.
enum class ResizeMode : std::uint8_t { nearest, bilinear, bilinear_align_corners };

/// x (batch, in_h, in_w, channels), y (batch, out_h, out_w, channels). Extents of images from 1 to 2^24, which float32
/// counts exactly.
struct Resize2dShape {
  std::int64_t batch = 0, in_h = 0, in_w = 0, channels = 0, out_h = 0, out_w = 0;
  ResizeMode mode = ResizeMode::nearest;

  std::int64_t x_elements() const { return batch * in_h * in_w * channels; }
  std::int64_t y_elements() const { return batch * out_h * out_w * channels; }
  bool operator==(const Resize2dShape&) const = default;
};

/// y = x at the places that the mode says; the bilinear ones are the mean of the four pixels around a place, weighted
/// by nearness, in float32. Nothing aliases. Asynchronous on CUDA; deterministic.
using Resize2dForward = void(const Exec&, const Resize2dShape&, DType dtype, const void* x, void* y);
/// dx[p] = Σ weight·dy over the outputs that read p, in their order; overwritten. Deterministic (gathers, no atomics).
using Resize2dGradInput = void(const Exec&, const Resize2dShape&, DType dtype, const void* dy, void* dx);

BANTAM_DECLARE_KERNEL(Resize2dForward, resize2d_forward);
BANTAM_DECLARE_KERNEL(Resize2dGradInput, resize2d_grad_input);

}  // namespace bantam::kernels
