// Magnitude pruning: masks of a parameter arena, made on the device at the updates where a schedule says so, and the
// weights that they set to zero. Source: Zhu and Gupta 2017, as TensorFlow Model Optimization has it (PolynomialDecay
// with power 3, ConstantSparsity).
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/update/update.h"

namespace bantam::kernels {

enum class PrunePattern : std::uint8_t {
  magnitude,   ///< the smallest magnitudes of a tensor are zero
  two_of_four  ///< of each four consecutive elements the two smallest magnitudes are zero; of two equal ones the later
};

/// When masks change, and to which sparsity. Update t is the t-th that was done, from 1: skipped ones do not count.
struct PruneRule {
  PrunePattern pattern = PrunePattern::magnitude;
  bool polynomial = true;                      ///< false: sparsity is `final_sparsity` throughout
  double initial = 0.0, final_sparsity = 0.5;  ///< share of zeros of a tensor
  /// Masks change after update t where begin <= t <= end and t - begin is a multiple of `frequency`, and after update
  /// `end`; where begin is 0, also after the first update, which is the first that they can follow.
  std::int64_t begin = 0, end = 0, frequency = 100;
};

/// A tensor that is pruned, in device memory.
struct PrunedTensor {
  std::int64_t begin = 0;     ///< its first element in the arena; a multiple of kWeightBlockSize
  std::int64_t elements = 0;  ///< two_of_four: a multiple of 4
};

struct PruneArena {
  std::int64_t tensor_count = 0;
  const PrunedTensor* tensors = nullptr;            ///< (tensor_count), device
  std::int64_t weight_blocks = 0;                   ///< of all pruned tensors
  const std::int32_t* weight_block_list = nullptr;  ///< (weight blocks), device: their places in the arena
  float* weights = nullptr;                         ///< the arena's masters
  void* compute = nullptr;                          ///< their copies of compute_dtype; null where there are none
  DType compute_dtype = DType::float32;
  float* average = nullptr;      ///< null: weights are not averaged
  std::uint8_t* mask = nullptr;  ///< of the arena's elements: 0 where a weight is zero, else 1
};

/// Follows `apply_update`, unless found_nonfinite. Where masks change after update control->updates, each tensor's
/// mask is made of the weights as they are: with n elements and the schedule's sparsity s, k = n(1 - s) rounded to the
/// nearest (to even between two) and at least 1, it keeps the weights whose magnitude is at least the k-th largest; a
/// weight that was zero may come back. Averages of masked weights become zero then. In every case, weights and compute
/// copies whose mask is 0 become zero. Asynchronous on CUDA; deterministic.
using PruneWeights = void(const Exec&, const PruneRule&, const PruneArena&, const UpdateControl* control);

BANTAM_DECLARE_KERNEL(PruneWeights, prune_weights);

}  // namespace bantam::kernels
