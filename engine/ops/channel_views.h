// Ops that choose or reorder channels: the last axis of their input.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam::ops {

/// x (…, C) → (…, end - begin): channels from `begin` to before `end`. Throws ShapeError unless 0 <= begin < end <= C.
/// dx is dy in these channels and 0 in the others.
Tensor channel_slice(const Context& context, const Tensor& x, std::int64_t begin, std::int64_t end);

/// x (…, C) → the same shape: channel i·C/groups + j becomes channel j·groups + i (Zhang et al., 2018: ShuffleNet;
/// PyTorch's ChannelShuffle). Throws ShapeError unless `groups` divides C. dx is dy shuffled back.
Tensor channel_shuffle(const Context& context, const Tensor& x, std::int64_t groups);

}  // namespace bantam::ops
