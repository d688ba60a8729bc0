// Internal: a position's logits on CUDA, read by kLanes neighbouring lanes of a warp. All lanes of the warp call these
// together; those of a group get the same.
#pragma once

#include <climits>

#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/loss/cuda/loss_sums.cuh"

namespace bantam::kernels::cuda {

/// Few classes at many positions: a warp reads four positions at once.
inline constexpr int kNarrowLanes = 8;
inline constexpr std::int64_t kMostNarrowClasses = 64;

constexpr bool narrow_rows(std::int64_t positions, std::int64_t classes) {
  return positions > 1 && classes <= kMostNarrowClasses;
}

template <int kLanes>
__device__ int lane_of_row() {
  return static_cast<int>(threadIdx.x) % kLanes;
}

template <int kLanes>
__device__ float row_sum(float value) {
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

/// The largest of a row and its first class (0 where every one is NaN); a NaN is never the largest.
struct RowTop {
  float value = -INFINITY;
  int place = INT_MAX;
};

template <int kLanes, class T>
__device__ RowTop row_top(const T* row, std::int64_t classes) {
  RowTop top;
  for (std::int64_t c = lane_of_row<kLanes>(); c < classes; c += kLanes) {
    const float value = to_float(row[c]);
    if (value > top.value) top = {value, static_cast<int>(c)};
  }
  for (int step = kLanes / 2; step > 0; step /= 2) {
    const RowTop other{__shfl_xor_sync(kAllLanes, top.value, step), __shfl_xor_sync(kAllLanes, top.place, step)};
    if (other.value > top.value || (other.value == top.value && other.place < top.place)) top = other;
  }
  if (top.place == INT_MAX) top.place = 0;
  return top;
}

/// Σ e^(l - top).
template <int kLanes, class T>
__device__ float row_exp_sum(const T* row, std::int64_t classes, float top) {
  float sum = 0;
  for (std::int64_t c = lane_of_row<kLanes>(); c < classes; c += kLanes) sum += expf(to_float(row[c]) - top);
  return row_sum<kLanes>(sum);
}

}  // namespace bantam::kernels::cuda
