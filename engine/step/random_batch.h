// Random batches: what steps are timed and warmed up on where no data are at hand.
#pragma once

#include <cstdint>

#include "bantam/base/philox.h"
#include "bantam/engine/step/training_step.h"

namespace bantam {

/// `size` samples for the model, in memory of its device (category input): images of its compute type, uniform in ±√3
/// (mean 0 and variance 1, as normalised images have), and labels uniform over its classes. The same key gives the same
/// bits; pixels repeat after 2²⁰ values, so that large batches take no host time. Waits for the device; on a meta
/// device nothing is drawn. Throws OutOfMemory.
Batch random_batch(const Model& model, std::int64_t size, PhiloxKey key);

}  // namespace bantam
