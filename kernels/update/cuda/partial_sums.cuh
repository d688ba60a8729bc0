// A thread block's share of the final sums of partial sums: neighbours of one array, a row of threads every 32nd part,
// then a warp an element, in a tree.
#pragma once

#include "bantam/kernels/update/partial_sums.h"

namespace bantam::kernels::cuda {

inline constexpr int kPartSumThreads = 256;
inline constexpr int kElementsOfShare = 8;  ///< a sector of memory in each part
inline constexpr int kPartRows = kPartSumThreads / kElementsOfShare;
static_assert(kPartRows == 32, "a warp adds the rows of one element");

/// Shares of one array, and of all.
__host__ __device__ inline int shares_of(const PartialSums::Array& array) {
  return (array.elements + kElementsOfShare - 1) / kElementsOfShare;
}
inline int shares_of(const PartialSums& partial) {
  int shares = 0;
  for (std::int32_t i = 0; i < partial.count; ++i) shares += shares_of(partial.arrays[i]);
  return shares;
}

/// Threads x and x + 8, … of a block of kPartSumThreads each add every 32nd part of an element, kTogether loads under
/// way.
__device__ inline float add_every_32nd(const PartialSums::Array& array, int element) {
  constexpr int kTogether = 8;
  float sum = 0;
  if (element >= array.elements) return sum;
  const float* from = array.from + element;
  for (int first = static_cast<int>(threadIdx.x) / kElementsOfShare; first < array.parts;
       first += kTogether * kPartRows) {
    float values[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const int part = first + k * kPartRows;
      values[k] = part < array.parts ? __ldcg(from + static_cast<std::int64_t>(part) * array.stride) : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) sum += values[k];
  }
  return sum;
}

/// Makes the sums of share `share` (all threads of a block of kPartSumThreads); returns, to the first lane of the warp
/// that wrote a sum, what lies there now, and 0 to all others.
__device__ inline float make_share(const PartialSums& partial, int share) {
  __shared__ float rows[kPartRows][kElementsOfShare + 1];
  int which = 0;
  while (which + 1 < partial.count && share >= shares_of(partial.arrays[which])) {
    share -= shares_of(partial.arrays[which]);
    ++which;
  }
  const PartialSums::Array& array = partial.arrays[which];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  rows[thread / kElementsOfShare][thread % kElementsOfShare] =
      add_every_32nd(array, share * kElementsOfShare + thread % kElementsOfShare);
  __syncthreads();
  const int element = share * kElementsOfShare + thread / 32;
  float sum = rows[lane][thread / 32];
  for (int apart = kPartRows / 2; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
  __syncthreads();  // the rows may be used again
  if (lane != 0 || element >= array.elements) return 0.0f;
  if (array.accumulate) sum += array.to[element];
  array.to[element] = sum;
  return sum;
}

}  // namespace bantam::kernels::cuda
