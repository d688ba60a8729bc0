// Where kernels write the batch statistics of the tensor that they write.
#pragma once

#include <cstdint>

#include "bantam/base/philox.h"

namespace bantam::kernels {

/// How running statistics move: running = (1 - r)·running + r·batch with r = rate·share. Keras' momentum 0.99 is rate
/// 0.01; PyTorch's momentum 0.1 is rate 0.1. With a warm-up r = max(rate, 10/(10 + updates))·share: the first batch
/// replaces the initial values, and later ones count for about a tenth of all so far, until `rate` is the larger.
struct RunningUpdate {
  float rate = 0.01f;    ///< in [0, 1]
  bool unbiased = true;  ///< the variance that enters is divided by rows - 1 (PyTorch; Keras' fused kernel too)
  float share = 1.0f;    ///< in (0, 1]: the batch's samples, of those of a full one
  const std::int64_t* updates = nullptr;  ///< device memory: updates done so far; null: no warm-up
};

/// The batch's part r of the running statistics. `updates` is read where the kernel runs.
BANTAM_HOST_DEVICE inline double running_part(const RunningUpdate& update) {
  constexpr double kWarmUp = 10;
  double rate = update.rate;
  if (update.updates != nullptr) {
    const double first = kWarmUp / (kWarmUp + static_cast<double>(*update.updates));
    if (first > rate) rate = first;
  }
  return rate * static_cast<double>(update.share);
}

/// The statistics that a batch norm over the tensor's channels needs, as batch_norm_forward_training writes them.
struct StatisticsOutput {
  float epsilon = 1e-3f;              ///< inv_std = 1/√(variance + epsilon)
  RunningUpdate update;               ///< how running_mean and running_variance move
  float* running_mean = nullptr;      ///< (channels), float32, updated in place; null: no running mean
  float* running_variance = nullptr;  ///< (channels), float32, updated in place; null: no running variance
  float* mean = nullptr;  ///< (channels), float32, written: the batch's mean. Null: no statistics are wanted, only the
                          ///< bits of the tensor that come with them
  float* inv_std = nullptr;  ///< (channels), float32, written: from the batch's biased variance

  bool wanted() const { return mean != nullptr; }
};

}  // namespace bantam::kernels
