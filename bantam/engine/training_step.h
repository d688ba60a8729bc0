// TrainingStep: forward, backward and update over the micro-batches of one effective batch, with no host
// synchronisation.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/engine/batch_source.h"
#include "bantam/engine/model.h"
#include "bantam/engine/optimizer.h"
#include "bantam/kernels/softmax_cross_entropy.h"

namespace bantam {

struct LossOptions {
  enum class Kind : std::uint8_t { softmax_cross_entropy } kind = Kind::softmax_cross_entropy;
  float label_smoothing = 0.0f;
  /// true: mean over the effective batch; false: sum.
  bool mean = true;
};

/// Sums of a set of samples, read back from the device.
struct Metrics {
  double loss = 0;      ///< mean per sample
  double accuracy = 0;  ///< share of samples
  std::int64_t samples = 0;
};

/// One model, optimizer and loss. Metrics of steps gather in a ring on the device, read back when asked for.
class TrainingStep {
 public:
  /// Steps whose metrics the device holds before they must be read.
  static constexpr int kMetricRing = 64;

  TrainingStep(Model& model, Optimizer& optimizer, LossOptions loss);

  /// Forward and backward of one micro-batch; `first_sample` is its place in the effective batch of `effective_batch`
  /// samples. Where it throws, the whole effective batch is forgotten (gradients, metrics, pending statistics), and may
  /// be tried again.
  void micro_batch(const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch);
  /// Forgets the effective batch so far: gradients, metrics, pending statistics. The next micro-batch begins a new one.
  void discard();
  /// Updates the weights with what the micro-batches accumulated; begins the next effective batch.
  void update();
  /// The whole step on one batch.
  void step(const Batch& batch) {
    micro_batch(batch, 0, batch.size);
    update();
  }
  /// Loss and accuracy of one batch without training; adds to the evaluation sums.
  void evaluate(const Batch& batch);

  /// Updates since the last read that the ring still holds.
  int pending_metrics() const { return slot_; }
  /// Metrics of each update since the last read, oldest first; waits for the device. Not between micro_batch() and
  /// update() (throws Error).
  std::vector<Metrics> read_metrics();
  /// Sums of all `evaluate` calls since the last read; waits for the device.
  Metrics read_evaluation();

  Model& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }

 private:
  void forward_and_backward(const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch);
  kernels::MetricSums* slot_sums() const;
  void add_metrics(const Context& context, const Tensor& logits, const Batch& batch, const Tensor& losses,
                   kernels::MetricSums* sums);

  Model& model_;
  Optimizer& optimizer_;
  LossOptions loss_;
  Tensor ring_;  // kMetricRing + 1 MetricSums: updates, then the evaluation's
  int slot_ = 0;
  bool accumulating_ = false;
};

}  // namespace bantam
