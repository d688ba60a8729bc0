// Pairs of a batch's samples mixed with each other, in place: mixup (Zhang et al., 2018) and CutMix (Yun et al., 2019);
// and their class numbers as probabilities.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// images (batch, height, width, channels).
struct MixShape {
  std::int64_t batch = 0, height = 0, width = 0, channels = 0;
};

/// Says what sample b gets of its partner, sample batch - 1 - b; the middle sample of an odd batch stays.
struct SampleMix {
  float share = 1.0f;  ///< of the sample itself in its target and, where the window is empty, in its pixels
  std::int16_t top = 0, left = 0, bottom = 0, right = 0;  ///< the window that gets the partner's pixels, ends excluded
};

/// Without a window x'[b] = share·x[b] + (1 - share)·x[batch - 1 - b] in float32 (two multiplies and an add, each
/// rounded: the same bits everywhere), cast to `dtype`; with a share of 1 x stays. With one, its pixels are the
/// partner's and all others stay. Both of a pair read values from before. `mixes` (batch) in device memory.
using MixImages = void(const Exec&, const MixShape&, const SampleMix* mixes, DType dtype, void* images);

/// targets (batch, classes) float32.
struct TargetMixShape {
  std::int64_t batch = 0, classes = 0;
  float smoothing = 0.0f;    ///< with labels: the share of a target that is spread evenly over all classes
  bool from_labels = false;  ///< targets are written from `labels`; else they are there and mixed in place
};

/// With t the targets, or 1 at the label and 0 elsewhere: q = share·t[b] + (1 - share)·t[batch - 1 - b], and from
/// labels smoothing / classes + (1 - smoothing)·q. A label outside [0, classes) makes its row, and its partner's where
/// that has a share of it, NaN. `labels` (batch), where it is not null, gets the label of the larger share. Without
/// `mixes` (null) all shares are 1.
using MixTargets = void(const Exec&, const TargetMixShape&, const SampleMix* mixes, std::int32_t* labels,
                        float* targets);

BANTAM_DECLARE_KERNEL(MixImages, mix_images);
BANTAM_DECLARE_KERNEL(MixTargets, mix_targets);

}  // namespace bantam::kernels
