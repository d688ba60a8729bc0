// Normalisation of each sample by itself, over groups of channels: group norm, instance norm (groups of one channel),
// and layer norm (one group, each position a sample); and the activation after it in the same pass.
// Sources: Wu and He 2018; Ulyanov, Vedaldi and Lempitsky 2016; Ba, Kiros and Hinton 2016. Statistics, scale and shift
// are float32 whatever x is.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels {

/// x and y (samples, positions, channels); a group is channels/groups channels that stand together, and `groups`
/// divides `channels`. A layer norm over the last axis has a sample for each row, one position and one group.
struct GroupNormShape {
  std::int64_t samples = 0, positions = 1, channels = 0, groups = 1;

  std::int64_t group_channels() const { return channels / groups; }
  std::int64_t elements() const { return samples * positions * channels; }
};

/// Scratch bytes for forward and for backward (the larger of the two); shape, type and target only.
std::size_t group_norm_workspace_bytes(const GroupNormShape& shape, DType dtype, DeviceKind target);

/// y = f(x̂·scale + shift), x̂ = (x - mean)·inv_std, with the mean and the biased variance of each sample and group over
/// its positions and channels, inv_std = 1/√(variance + epsilon). `mean` and `inv_std` (samples, groups), float32, are
/// written: backward reads them. y may be null, where only they are wanted, and may alias x. Variance by a numerically
/// safe method (two passes or Welford/Chan), not E[x²]-E[x]². Deterministic.
using GroupNormForward = void(const Exec&, const GroupNormShape&, DType dtype, const void* x, const BatchNormAffine&,
                              float epsilon, void* y, float* mean, float* inv_std, Workspace);

/// y from x and the statistics (samples, groups) that forward saved: the bits that forward wrote. y may alias x.
using GroupNormApply = void(const Exec&, const GroupNormShape&, DType dtype, const NormOperand& norm, void* y);

/// z is recomputed from x: dz = dy·f'(z); dshift = Σ dz and dscale = Σ dz·x̂ over samples and positions; with w =
/// scale·dz and means over a sample's group, dx = inv_std·(w - mean(w) - x̂·mean(w·x̂)) + addend, rounded once. `norm`
/// has the statistics (samples, groups); dy and addend like x, the addend may be null. dx may alias dy or the addend.
/// Where there are no samples, dscale and dshift are 0. Deterministic.
using GroupNormBackward = void(const Exec&, const GroupNormShape&, DType dtype, const NormOperand& norm, const void* dy,
                               const void* addend, const NormGradients&, Workspace);
BANTAM_DECLARE_KERNEL(GroupNormForward, group_norm_forward);
BANTAM_DECLARE_KERNEL(GroupNormApply, group_norm_apply);
BANTAM_DECLARE_KERNEL(GroupNormBackward, group_norm_backward);

}  // namespace bantam::kernels
