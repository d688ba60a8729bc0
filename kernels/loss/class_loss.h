// Losses of a softmax over classes at every position: cross-entropy, PolyLoss and focal loss, against class numbers or
// probabilities. Loss, counts and gradient in one call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/loss/loss_outputs.h"

namespace bantam::kernels {

/// logits (batch, positions, classes). The target of a position is q = (1 - smoothing)·t + smoothing/classes.
struct ClassLossShape {
  std::int64_t batch = 0, positions = 1, classes = 0;
  float smoothing = 0.0f;
  float epsilon = 0.0f;      ///< of PolyLoss: the factor of 1 - p beside -log p
  float gamma = 0.0f;        ///< of the focal loss; then smoothing and epsilon are 0 and there are labels
  bool has_ignored = false;  ///< positions labelled `ignored` do not count: no loss, no gradient
  std::int32_t ignored = 0;
};

struct ClassLossInputs {
  const void* logits = nullptr;          ///< (batch, positions, classes), of the call's `dtype`
  const std::int32_t* labels = nullptr;  ///< (batch, positions): t is 1 at the label; null: `targets` is t
  const float* targets = nullptr;        ///< (batch, positions, classes)
  const float* class_weights = nullptr;  ///< (classes), w; null: 1
  LossScale scale;
};

/// With p = softmax(logits) and y the label of a position, its term is Σ_c w_c·q_c·(-log p_c + epsilon·(1 - p_c)),
/// where epsilon is that of Poly-1 (Leng et al., 2022); with gamma > 0 -w_y·(1 - p_y)^gamma·log p_y (Lin et al., 2017).
/// The mean is over positions that count, so that a weight is a factor and no share. A position is right where its
/// first largest logit is the label, or the first largest target; a sample counts as correct by the share of its
/// positions. A label outside [0, classes) that is not ignored makes loss and gradient NaN. dx may not alias logits.
/// Float32 arithmetic.
using ClassLoss = void(const Exec&, const ClassLossShape&, DType dtype, const ClassLossInputs&, const LossOutputs&,
                       Workspace);

std::size_t class_loss_workspace_bytes(const ClassLossShape& shape);

BANTAM_DECLARE_KERNEL(ClassLoss, class_loss);

}  // namespace bantam::kernels
