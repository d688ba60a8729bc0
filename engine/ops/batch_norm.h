// Batch normalisation over the last axis.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/norm.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam {
struct BatchStatistics;
}

namespace bantam::ops {

/// x (…, C) to y of its shape and type. Pass::train and Pass::recompute normalise with the batch's statistics (computed
/// here, or by the op that wrote x: BatchStatistics), Pass::evaluate, and a norm that is frozen always, with the
/// running ones, which are constants in backward. Backward keeps x and the batch's mean and deviation, never y. Where
/// the node's plan defers the norm, and it has no activation, y has x's memory and a DeferredNorm note. Throws
/// ShapeError, DTypeError. Source: Ioffe and Szegedy, 2015.
Tensor batch_norm(const Context& context, const Tensor& x, const Norm& norm);

/// Throws ShapeError, DTypeError, DeviceError where a norm's tensors do not fit x.
void check_batch_norm(const Context& context, const Tensor& x, const Norm& norm);

/// For ops with norms in them: whether the statistics of the norm that reads x are there already: x has them, or the
/// first pass of a checkpoint segment saved them.
bool has_statistics(const Context& context, const Tensor& x);
/// `norm` over this batch: with the statistics of the first pass where a segment is recomputed, with those in `known`,
/// or with new tensors (C) for a kernel to write. In a segment's first pass they are saved.
Norm norm_of_batch(const Context& context, const Norm& norm, std::int64_t channels,
                   const BatchStatistics* known = nullptr);
/// Writes the statistics of `batch`, which is `norm` over x (…, C), in a pass of their own, unless they are there.
void measure_norm(const Context& context, const Tensor& x, const Norm& norm, const Norm& batch);

}  // namespace bantam::ops
