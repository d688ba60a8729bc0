// A training step's warm-up: everything runs once, and nothing is different afterwards but what the device has
// loaded.
#include "bantam/engine/warm_up.h"

#include "bantam/base/error.h"
#include "bantam/engine/random_batch.h"

namespace bantam {

void TrainingStep::warm_up(std::int64_t batch_size, bool accumulates) {
  if (accumulating_) throw Error("training step: warm_up() between micro_batch() and update()");
  const Stream stream = model_.runtime().stream(model_.device());
  const Batch batch = random_batch(model_, batch_size, philox_key(model_.options().seed, RandomPurpose::dataset));
  micro_batch(batch, 0, batch_size * (accumulates ? 2 : 1));
  if (accumulates) micro_batch(batch, batch_size, batch_size * 2);
  discard();
  kernels::MetricSums kept;  // evaluation sums that were not read yet
  kernels::MetricSums* evaluation = ring_.as<kernels::MetricSums>() + kMetricRing;
  copy_bytes(&kept, evaluation, sizeof(kept), stream);
  evaluate(batch);
  copy_bytes(evaluation, &kept, sizeof(kept), stream);
  optimizer_.warm_up();
  synchronize(stream);
}

std::int64_t warm_up_what_fits(TrainingStep& step, std::int64_t batch, bool accumulates) {
  for (std::int64_t piece = batch;; piece = (piece + 1) / 2) {
    try {
      step.warm_up(piece, accumulates || piece < batch);
      return piece;
    } catch (const OutOfMemory&) {
      if (piece <= 1) return 0;
      Model& model = step.model();
      model.runtime().allocator(model.device()).trim();
    }
  }
}

}  // namespace bantam
