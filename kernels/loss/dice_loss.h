// Soft dice loss over the positions of each sample, a term a class (Milletari et al., 2016). Loss, counts and gradient
// in one call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/loss/loss_outputs.h"

namespace bantam::kernels {

/// logits (batch, positions, classes).
struct DiceLossShape {
  std::int64_t batch = 0, positions = 1, classes = 0;
  float smooth = 1.0f;       ///< added to both sides of the fraction
  bool has_ignored = false;  ///< with labels: positions labelled `ignored` are in no sum and have no gradient
  std::int32_t ignored = 0;
};

struct DiceLossInputs {
  const void* logits = nullptr;          ///< (batch, positions, classes), of the call's `dtype`
  const std::int32_t* labels = nullptr;  ///< (batch, positions): p is the softmax over classes; null: the sigmoid
  const float* targets = nullptr;        ///< (batch, positions, classes), with the sigmoid
  LossScale scale;                       ///< its mean is over classes
};

/// The term of class c of a sample is 1 - (2·Σ p·t + smooth)/(Σ p + Σ t + smooth), sums over positions. With labels a
/// position is right where its first largest logit is the label, else a value is right where x > 0 is t >= 1/2; a
/// sample counts as correct by its share of right ones. A label outside [0, classes) that is not ignored makes the
/// sample's loss and gradient NaN. dx may not alias logits. Float32 arithmetic.
using DiceLoss = void(const Exec&, const DiceLossShape&, DType dtype, const DiceLossInputs&, const LossOutputs&,
                      Workspace);

std::size_t dice_loss_workspace_bytes(const DiceLossShape& shape);

BANTAM_DECLARE_KERNEL(DiceLoss, dice_loss);

}  // namespace bantam::kernels
