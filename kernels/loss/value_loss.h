// Losses of each value on its own: squared, absolute and Huber's error, binary cross-entropy and binary focal loss.
// Loss, counts and gradient in one call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/loss/loss_outputs.h"

namespace bantam::kernels {

enum class ValueLossKind : std::uint8_t { squared, absolute, huber, binary_cross_entropy, binary_focal };

/// x and targets (batch, values).
struct ValueLossShape {
  std::int64_t batch = 0, values = 0;
  ValueLossKind kind = ValueLossKind::squared;
  float delta = 1.0f;         ///< huber: where the parabola ends
  float smoothing = 0.0f;     ///< binary_cross_entropy: targets t become (1 - smoothing)·t + smoothing/2
  float gamma = 2.0f;         ///< binary_focal
  float alpha = -1.0f;        ///< binary_focal: the weight of targets 1; 1 - alpha that of 0; below 0: none
  std::int64_t channels = 1;  ///< values of a sample are (…, channels); of positive_weights
};

struct ValueLossInputs {
  const void* x = nullptr;                  ///< (batch, values), of the call's `dtype`
  const float* targets = nullptr;           ///< (batch, values)
  const float* positive_weights = nullptr;  ///< (channels), binary_cross_entropy: the weight of targets 1; null: 1
  LossScale scale;
};

/// Terms, with d = x - t and p = 1/(1 + e^-x):
///   squared               d²
///   absolute              |d|, whose derivative at 0 is 0
///   huber                 d²/2 for |d| <= delta, else delta·(|d| - delta/2)
///   binary_cross_entropy  -w·t·log p - (1 - t)·log(1 - p)
///   binary_focal          α_t·(1 - p_t)^gamma·(-t·log p - (1 - t)·log(1 - p)), p_t = p·t + (1 - p)·(1 - t)
/// A value of the last two is right where x > 0 is t >= 1/2; the others count nothing as right. dx may not alias x.
/// Float32 arithmetic.
using ValueLoss = void(const Exec&, const ValueLossShape&, DType dtype, const ValueLossInputs&, const LossOutputs&,
                       Workspace);

std::size_t value_loss_workspace_bytes(const ValueLossShape& shape);

BANTAM_DECLARE_KERNEL(ValueLoss, value_loss);

}  // namespace bantam::kernels
