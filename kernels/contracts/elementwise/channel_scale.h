// A factor a channel, of all values or (PReLU) of those that are not positive, and its gradients.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/contracts/dispatch.h"

namespace bantam::kernels {

/// x (rows, channels) and float32 factors s (channels), or (1) where `shared`.
struct ChannelScaleShape {
  std::int64_t rows = 0, channels = 0;
  bool negative_only = false;  ///< y = x where x > 0: PReLU (He et al. 2015), whose slope at 0 is s
  bool shared = false;

  std::int64_t factors() const { return shared ? 1 : channels; }
};

/// y[r, c] = s[c]·x[r, c], or x where it is positive and `negative_only`; x and y of `dtype` (float32, float16,
/// bfloat16), computed in float32. y may alias x.
using ChannelScaleForward = void(const Exec&, const ChannelScaleShape&, DType dtype, const void* x, const float* s,
                                 void* y);

/// What the gradient reads: x and dy of the call's `dtype`.
struct ChannelScaleGradInputs {
  const void* x = nullptr;
  const float* s = nullptr;
  const void* dy = nullptr;
};
/// What it writes; null: not wanted, but not both.
struct ChannelScaleGradients {
  void* dx = nullptr;       ///< `dtype`; may alias dy
  float* ds = nullptr;      ///< float32 (channels) or (1)
  bool accumulate = false;  ///< ds is added to
};
/// dx = s·dy and ds[c] = Σ_r x·dy, where y is scaled; elsewhere dx = dy, and the term of the sum is 0. Partial sums in
/// a fixed order, in the pass that writes dx.
using ChannelScaleGrad = void(const Exec&, const ChannelScaleShape&, DType dtype, const ChannelScaleGradInputs&,
                              const ChannelScaleGradients&, Workspace);
/// Scratch bytes of `channel_scale_grad`; shape and target only.
std::size_t channel_scale_grad_workspace_bytes(const ChannelScaleShape& shape, DeviceKind target);

namespace cpu {
ChannelScaleForward channel_scale_forward;
ChannelScaleGrad channel_scale_grad;
}  // namespace cpu
namespace cuda {
ChannelScaleForward channel_scale_forward;
ChannelScaleGrad channel_scale_grad;
}  // namespace cuda
namespace meta {
ChannelScaleForward channel_scale_forward;
ChannelScaleGrad channel_scale_grad;
}  // namespace meta

}  // namespace bantam::kernels
