// A warm-up where memory may not be there for the whole batch.
#pragma once

#include <cstdint>

#include "bantam/engine/training_step.h"

namespace bantam {

/// TrainingStep::warm_up with the largest piece of `batch` samples that there is memory for: the batch, else its half,
/// a half of that, …, as a run with `on_oom: accumulate` halves its micro-batches; with less than the batch, gradients
/// are added too. Gives the samples of the piece; 0 where memory is not there for one sample: the kernels are then
/// loaded by the steps themselves. Throws as warm_up, but for OutOfMemory.
std::int64_t warm_up_what_fits(TrainingStep& step, std::int64_t batch, bool accumulates);

}  // namespace bantam
