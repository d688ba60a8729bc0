// Every loss kernel of this folder reads a LossScale beside its operands, and writes LossOutputs.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/head/metric_sums.h"

namespace bantam::kernels {

/// How a loss is made of its terms (positions, values or classes of a sample), and the gradient that backward starts
/// with. A sample's loss is the mean of its terms that count, or their sum; *loss = Σ of samples' losses / divisor.
struct LossScale {
  bool mean = true;
  float divisor = 1.0f;
  const float* upstream = nullptr;  ///< device scalar: the gradient of *loss; read where a gradient is made
};

/// Where results go. All sums have a fixed order.
struct LossOutputs {
  float* loss = nullptr;               ///< one float32; null: only the gradient is made
  void* dx = nullptr;                  ///< the operand's shape and type: (*upstream)·d loss/dx; null: no gradient
  MetricSums* ring = nullptr;          ///< ring[*slot] += this batch's sums; null: none
  const std::int32_t* slot = nullptr;  ///< device memory, read by the kernel; null: 0
};

/// values[0 … count) in host memory → `to` on the device, without a wait: they travel as arguments of launches, so that
/// a recorded step keeps them.
using StoreConstants = void(const Exec&, const float* values, std::int64_t count, float* to);

BANTAM_DECLARE_KERNEL(StoreConstants, store_constants);

}  // namespace bantam::kernels
