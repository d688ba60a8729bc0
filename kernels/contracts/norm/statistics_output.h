// Where kernels write the batch statistics of the tensor that they write.
#pragma once

namespace bantam::kernels {

/// How running statistics move: running = (1 - rate)·running + rate·batch. Keras' momentum 0.99 is rate 0.01; PyTorch's
/// momentum 0.1 is rate 0.1.
struct RunningUpdate {
  float rate = 0.01f;    ///< the batch's share, in [0, 1]
  bool unbiased = true;  ///< the variance that enters is divided by rows - 1 (PyTorch; Keras' fused kernel too)
};

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
