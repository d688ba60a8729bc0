// Random batches: to time and warm up steps without data.
#pragma once

#include <cstdint>

#include "bantam/base/philox.h"
#include "bantam/engine/step/training_step.h"

namespace bantam {

/// `size` samples for the model, the loss and its metrics, in memory of the model's device (category input): images and
/// targets of floating types uniform in ±√3 (mean 0 and variance 1, as normalised images have), class numbers uniform
/// over the classes, and zeros of other types. The same key draws the same bits; values repeat after 2²⁰ of them, so
/// that large batches cost no host time. Waits for the device; on a meta device nothing is drawn. Throws OutOfMemory.
Batch random_batch(const Model& model, std::int64_t size, PhiloxKey key, const LossOptions& loss = {});

}  // namespace bantam
