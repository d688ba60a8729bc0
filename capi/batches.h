// Internal: a caller's arrays as batches on a model's device.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/capi/arrays.h"
#include "bantam/engine/step/training_step.h"

namespace bantam::capi {

/// Returns name, shape and type of each array, and the number of classes that the loss expects of its labels.
std::vector<TensorFacts> facts_of(const std::vector<HostArray>& arrays, TrainingStep& step);

/// Throws BadArgument for an array `name` of `what` that no step of this loss and output reads. Labels may be stored
/// where the loss reads targets: a stage of the pipeline makes these of them.
void require_read(const std::string& name, const LossOptions& loss, const Shape& output, std::string_view what,
                  bool stored = false);

/// Copies the arrays to the device, images in the type that the model computes in. `what` names them in messages.
/// Throws ShapeError, DTypeError and DataError where they do not suit the step.
Batch uploaded(const std::vector<HostArray>& arrays, TrainingStep& step, const Context& context, std::string_view what);

}  // namespace bantam::capi
