// PendingNorm: a batch norm that is still to be applied to a tensor, by the op that reads it.
#pragma once

#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/kernels/contracts/norm/batch_norm_add.h"

namespace bantam {

/// What a tensor has (Tensor::pending) whose memory is a batch norm's input, while its value is the norm's output. Only
/// sums read such tensors, and pointwise convolutions those of fused stretches (Fusion::leaves_norm); `lower` (graph.h)
/// sees to it that nobody else gets one.
struct PendingNorm {
  SavedTensor x;                           ///< what backward keeps of the input; undefined where nothing is recorded
  Tensor scale, shift;                     ///< (channels) float32; undefined: 1 and 0
  Tensor mean, inv_std;                    ///< (channels) float32
  kernels::ActivationFunction activation;  ///< behind the norm; none where a sum reads it

  /// The tensor that has this norm pending, as the kernel takes it.
  kernels::NormOperand operand(const Tensor& tensor) const {
    return {.x = tensor.data(),
            .affine = {scale.defined() ? scale.as<float>() : nullptr, shift.defined() ? shift.as<float>() : nullptr,
                       activation},
            .mean = mean.as<float>(),
            .inv_std = inv_std.as<float>()};
  }
};

}  // namespace bantam
