// A factor for each sample and channel of an image: gates. Its gradient sums over positions.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// x (samples, positions, channels) of `dtype`, factors (samples, channels) of `factor_dtype`: that of x, or float32.
struct ChannelScaleShape {
  std::int64_t samples = 0, positions = 0, channels = 0;
  DType dtype = DType::float32, factor_dtype = DType::float32;

  std::int64_t elements() const { return samples * positions * channels; }
  std::int64_t factors() const { return samples * channels; }
};

/// y[n, p, c] = x[n, p, c]·factor[n, c] + offset[n, c]; a null offset is 0. float32 arithmetic. y may alias x.
using ChannelScaleForward = void(const Exec&, const ChannelScaleShape& shape, const void* x, const void* factor,
                                 const void* offset, void* y);

struct ChannelScaleInputs {
  const void* x = nullptr;       ///< read for dfactor
  const void* factor = nullptr;  ///< read for dx
  const void* dy = nullptr;
};
/// Either may be null: nobody wants it.
struct ChannelScaleGradients {
  void* dx = nullptr;       ///< dy·factor; may alias dy
  void* dfactor = nullptr;  ///< Σ_p dy·x, of the factors' type, overwritten
};
/// In one pass over dy (and x, for dfactor). Partial sums in a fixed order.
using ChannelScaleGrad = void(const Exec&, const ChannelScaleShape& shape, const ChannelScaleInputs& inputs,
                              const ChannelScaleGradients& to, Workspace);
/// Scratch bytes of `channel_scale_grad` where it writes dfactor; shape and target only.
std::size_t channel_scale_workspace_bytes(const ChannelScaleShape& shape, DeviceKind target);

BANTAM_DECLARE_KERNEL(ChannelScaleForward, channel_scale_forward);
BANTAM_DECLARE_KERNEL(ChannelScaleGrad, channel_scale_grad);

}  // namespace bantam::kernels
