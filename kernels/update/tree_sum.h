// Sums of a binary tree over replicas: the terms of a chain of its nodes added in one pass, and a root of metric sums
// stored in its update's slot.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// Arrays of equal size, aligned to 16 bytes; small enough to be an argument of a kernel.
struct TreeTerms {
  static constexpr int kMost = 12;  ///< a leaf of 2^11 replicas completes so many

  const void* terms[kMost] = {};  ///< x_0, the leaf just made, then the sums that wait: each of lower replicas
  int count = 0;

  /// Throws Error where there are kMost already.
  void add(const void* term);
};

/// Throws Error where tree_sum cannot add such terms.
void check_tree_sum(DType dtype, const TreeTerms& terms);
/// Throws Error where narrow_tree_sum cannot.
void check_narrow_tree_sum(const TreeTerms& terms, DType to);

/// out = factor · (x_k + (… + (x_2 + (x_1 + x_0)))) of `elements` float32 or float64 numbers, added in their type and
/// in this order; `factor`, a power of two, multiplies the sum. `out`, aligned as they are, may be one of the terms.
/// Throws Error for other types, and without terms. Asynchronous on CUDA; deterministic.
using TreeSum = void(const Exec&, DType, std::int64_t elements, const TreeTerms&, double factor, void* out);

/// The same of float32 terms, where each of them and each sum is rounded to float16 (to nearest even): what a tree
/// comes to whose sums travel in float16. `to`: the type of `out`, float32 (which may be one of the terms) or float16
/// (which overlaps none). Sums beyond 65504 become infinite. Throws Error for another type, and without terms.
/// Asynchronous on CUDA; deterministic.
using NarrowTreeSum = void(const Exec&, std::int64_t elements, const TreeTerms&, DType to, void* out);

/// ring[*slot · count + i] = sums[i], for i < count. `slot`: device memory. Asynchronous on CUDA.
using StoreAtSlot = void(const Exec&, std::int64_t count, const double* sums, const std::int32_t* slot, double* ring);

BANTAM_DECLARE_KERNEL(TreeSum, tree_sum);
BANTAM_DECLARE_KERNEL(NarrowTreeSum, narrow_tree_sum);
BANTAM_DECLARE_KERNEL(StoreAtSlot, store_at_slot);

}  // namespace bantam::kernels
