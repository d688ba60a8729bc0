// Batch norm over the batches of several ranks: what each of them tells of its batch, and what becomes of the sums.
// Statistics of a rank are those of batch_norm_forward_training, its sums those of batch_norm_backward_training.
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels {

/// Numbers of a message: rows, then rows·mean and rows·(variance + mean²) of each channel. They add up over ranks. In
/// float64 the difference that variances are made of costs 2^-53·mean²/variance: nothing beside float32.
constexpr std::int64_t norm_message_elements(std::int64_t channels) { return 2 * channels + 1; }

/// message (norm_message_elements) = what a batch of `rows` rows with `mean` and biased `variance` (channels, float32)
/// tells.
using PackMoments = void(const Exec&, std::int64_t channels, std::int64_t rows, const float* mean,
                         const float* variance, double* message);

/// From the sum of all ranks' messages: mean and inv_std of the whole batch, which `statistics` must want, and its
/// running ones, where they are; *inv_rows = 1/rows of the whole batch.
using UnpackMoments = void(const Exec&, std::int64_t channels, const double* message,
                           const StatisticsOutput& statistics, float* inv_rows);

/// dx of batch_norm_backward_training for this rank's rows of a larger batch. `sums` (4, channels): Σ dz and Σ dz·x̂ of
/// the whole batch, replaced by their means; the rest is scratch. `norm` is normalised, with the statistics of the
/// whole batch: dx = scale·inv_std·(dz - sums[0]·inv_rows - x̂·sums[1]·inv_rows). dx may alias dy. Deterministic.
using SyncNormInputGradient = void(const Exec&, const BatchNormShape&, DType dtype, const NormOperand& norm,
                                   const void* dy, const float* inv_rows, float* sums, void* dx);

BANTAM_DECLARE_KERNEL(PackMoments, pack_moments);
BANTAM_DECLARE_KERNEL(UnpackMoments, unpack_moments);
BANTAM_DECLARE_KERNEL(SyncNormInputGradient, sync_norm_input_gradient);

}  // namespace bantam::kernels
