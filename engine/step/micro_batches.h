// MicroBatches: a batch given to the training step in pieces, and the pieces halved where memory runs out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "bantam/engine/step/training_step.h"

namespace bantam {

/// What a Trainer does where a micro-batch does not fit.
enum class OnOutOfMemory : std::uint8_t {
  fail,        ///< OutOfMemory leaves the trainer
  accumulate,  ///< the update is rolled back and repeated with half the micro-batch; refused with batch statistics
  /// The same, also with layers whose function changes with the micro-batch (batch normalisation): their statistics are
  /// then those of the smaller micro-batches.
  accumulate_with_batch_norm
};

/// "fail", "accumulate", "accumulate_with_batch_norm".
std::string_view to_string(OnOutOfMemory policy);

/// Whether a layer's function in training depends on the micro-batch (Layer::uses_batch_statistics).
bool uses_batch_statistics(const Graph& graph);

/// Throws ConfigError where the policy changes the model's function and was not asked for by name.
void check_on_oom(OnOutOfMemory policy, const Graph& graph);

/// `count` samples of a batch from `first` on: views of its tensors, or copies where a view would not be aligned to 16
/// bytes, as kernels of libraries need. Throws ShapeError where the samples are not there, OutOfMemory for a copy.
Batch slice(const Context& context, const Batch& batch, std::int64_t first, std::int64_t count);

/// Runs batches whole, or in pieces of equal order: same samples, same places in the effective batch, so the same
/// random numbers; only the order of the sums of gradients differs. Used by one thread.
class MicroBatches {
 public:
  explicit MicroBatches(TrainingStep& step) : step_(step) {}

  /// Most samples of a piece; 0: batches are run whole.
  std::int64_t most() const { return most_; }
  /// Pieces of at most `most` samples from now on, as after so many `halve`s.
  void split(std::int64_t most) { most_ = most; }
  /// Whether `train` copies pieces of such a batch, which are not aligned as views.
  bool copies(const Batch& batch) const;
  /// Forward and backward of a whole batch, as TrainingStep::micro_batch, piece by piece. Where it throws, the whole
  /// effective batch is forgotten.
  void train(const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch);
  /// Forward and backward of an effective batch of `samples` samples (0: `count` times those of the first batch) in
  /// `count` batches: `next(i)` returns the i-th, which is released before the next is asked for, or nothing to stop;
  /// then the effective batch so far is forgotten, and false is returned. Where it throws, too, it is forgotten, unless
  /// it was `next` that threw. An update is to follow.
  bool accumulate(std::int64_t count, std::int64_t samples,
                  const std::function<std::optional<Batch>(std::int64_t i)>& next);
  /// Adds the batch to the evaluation sums. With `may_halve`, a piece that does not fit is tried again in halves (of
  /// evaluation only); what was added before counts once.
  void evaluate(const Batch& batch, bool may_halve);
  /// Half as many samples a piece, for batches of at most `batch` samples; false, changing nothing, where pieces have
  /// one sample already. Also gives idle memory of the device back, whose pieces may be too small for what comes, and
  /// drops the plans of larger pieces.
  bool halve(std::int64_t batch);

 private:
  bool halve(std::int64_t& most, std::int64_t batch);

  TrainingStep& step_;
  std::int64_t most_ = 0, most_evaluated_ = 0;  // 0: whole batches
};

}  // namespace bantam
