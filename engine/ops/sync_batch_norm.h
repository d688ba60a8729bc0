// Batch normalisation over the batches of all ranks.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/norm.h"

namespace bantam::ops {

/// As batch_norm, with the statistics of micro-batches that ranks run at the same time (StepState::norms): their rows
/// are one batch, of which each rank has a part, and the running statistics move by it. dscale and dshift are of this
/// rank's rows, so that they add up as gradients do; dx is that of the whole batch. Two small messages a norm and
/// micro-batch, in the order of the stream; none where a checkpoint segment is recomputed. Without StepState::norms,
/// frozen, and in Pass::evaluate it is batch_norm. Throws what batch_norm throws, CommunicationError.
Tensor sync_batch_norm(const Context& context, const Tensor& x, const Norm& norm);

}  // namespace bantam::ops
