// BatchStatistics: what a batch norm needs to know of the batch, from the op that wrote its input.
#pragma once

#include "bantam/engine/autograd/tensor.h"

namespace bantam {

/// What a tensor has (Tensor::statistics) that an op wrote for the batch norm behind it (Context::norm_behind): made
/// with that norm's epsilon, and its running statistics have moved.
struct BatchStatistics {
  Tensor mean,
      inv_std;  ///< (channels) float32; undefined where a stretch runs again, whose norm has those of the first pass
  /// The op's backward makes the norm's input gradient as it reads (Gradient::Norm).
  bool makes_gradient = false;
};

}  // namespace bantam
