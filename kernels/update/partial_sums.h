// Split-K partial sums of weight gradients, which the update's kernel adds up.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// Arrays of partial sums, at most kMost; small enough to be an argument of a kernel. The memory of the partial sums
/// must stay valid until they are added up.
struct PartialSums {
  /// to[i] (+)= Σ over part < parts of from[part·stride + i], for i < elements; device memory, float32.
  struct Array {
    const float* from = nullptr;
    float* to = nullptr;
    std::int32_t parts = 0;  ///< 0: the sums are zeros
    std::int32_t stride = 0;
    std::int32_t elements = 0;
    bool accumulate = false;  ///< the sums are added to what lies at `to`
  };
  static constexpr std::int32_t kMost = 12;

  Array arrays[kMost];
  std::int32_t count = 0;

  /// Throws Error where there are kMost already.
  void add(const Array& array);
};

/// Adds up the partial sums, each in a fixed order. Asynchronous on CUDA; deterministic.
using AddUpParts = void(const Exec&, const PartialSums&);

BANTAM_DECLARE_KERNEL(AddUpParts, add_up_parts);

}  // namespace bantam::kernels
