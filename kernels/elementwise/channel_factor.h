// A factor a channel, of all values or (PReLU) of those that are not positive, and its gradients.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// x (rows, channels) and float32 factors s (channels), or (1) where `shared`.
struct ChannelFactorShape {
  std::int64_t rows = 0, channels = 0;
  bool negative_only = false;  ///< y = x where x > 0: PReLU (He et al. 2015), whose slope at 0 is s
  bool shared = false;

  std::int64_t factors() const { return shared ? 1 : channels; }
};

/// y[r, c] = s[c]·x[r, c], or x where it is positive and `negative_only`; x and y of `dtype` (float32, float16,
/// bfloat16), computed in float32. y may alias x.
using ChannelFactorForward = void(const Exec&, const ChannelFactorShape&, DType dtype, const void* x, const float* s,
                                  void* y);

/// The gradient reads these; x and dy are of the call's `dtype`.
struct ChannelFactorGradInputs {
  const void* x = nullptr;
  const float* s = nullptr;
  const void* dy = nullptr;
};
/// The gradient writes these; a null one is not wanted, but not both are null.
struct ChannelFactorGradients {
  void* dx = nullptr;       ///< `dtype`; may alias dy
  float* ds = nullptr;      ///< float32 (channels) or (1)
  bool accumulate = false;  ///< ds is added to
};
/// dx = s·dy and ds[c] = Σ_r x·dy, where y is scaled; elsewhere dx = dy, and the term of the sum is 0. Partial sums in
/// a fixed order, in the pass that writes dx.
using ChannelFactorGrad = void(const Exec&, const ChannelFactorShape&, DType dtype, const ChannelFactorGradInputs&,
                               const ChannelFactorGradients&, Workspace);
/// Scratch bytes of `channel_factor_grad`; shape and target only.
std::size_t channel_factor_grad_workspace_bytes(const ChannelFactorShape& shape, DeviceKind target);

BANTAM_DECLARE_KERNEL(ChannelFactorForward, channel_factor_forward);
BANTAM_DECLARE_KERNEL(ChannelFactorGrad, channel_factor_grad);

}  // namespace bantam::kernels
