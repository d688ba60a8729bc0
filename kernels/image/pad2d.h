// Padding and cropping of images, NHWC.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// Says what lies beyond the edge: zeros, the edge's pixel, the image mirrored at the edge's pixel, or its other end.
enum class EdgeMode : std::uint8_t { zeros, replicate, reflect, circular };

/// x (batch, in_h, in_w, channels), y (batch, out_h(), out_w(), channels). Negative amounts crop, before the positive
/// ones are added; at least a row and a column are left then, and more than is added on a side with `reflect`, at least
/// as many with `circular`. Extents up to 2^24.
struct Pad2dShape {
  std::int64_t batch = 0, in_h = 0, in_w = 0, channels = 0;
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
  EdgeMode mode = EdgeMode::zeros;

  std::int64_t out_h() const { return in_h + top + bottom; }
  std::int64_t out_w() const { return in_w + left + right; }
  std::int64_t x_elements() const { return batch * in_h * in_w * channels; }
  std::int64_t y_elements() const { return batch * out_h() * out_w() * channels; }
  bool operator==(const Pad2dShape&) const = default;
};

/// y = x with `amounts` around it. Nothing aliases. Asynchronous on CUDA; deterministic.
using Pad2dForward = void(const Exec&, const Pad2dShape&, DType dtype, const void* x, void* y);
/// dx[p] = Σ dy over the outputs that are p, in their order; 0 where it was cropped; overwritten. float32 sums.
/// Deterministic (gathers, no atomics).
using Pad2dGradInput = void(const Exec&, const Pad2dShape&, DType dtype, const void* dy, void* dx);

BANTAM_DECLARE_KERNEL(Pad2dForward, pad2d_forward);
BANTAM_DECLARE_KERNEL(Pad2dGradInput, pad2d_grad_input);

}  // namespace bantam::kernels
