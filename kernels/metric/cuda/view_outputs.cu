// Outputs of views added up on CUDA; the least certain rows: a key a row by warps, then one block that finds the last
// key by its digits (radix selection) and writes the chosen rows in order.
#include <algorithm>
#include <cmath>

#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/metric/view_outputs.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kRowsOfBlock = kMapThreads / kWarp;
constexpr int kSelectThreads = 1024;
constexpr int kDigits = 256;
constexpr int kDigitBits = 8;
constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
__global__ void view_outputs_kernel(ViewOutputShape s, const T* y, const std::int32_t* places, float* to) {
  const std::int64_t elements = s.rows * s.columns;
  for (std::int64_t i = grid_thread(); i < elements; i += grid_threads()) {
    const std::int64_t n = i / s.columns;
    float* const at = to + (places != nullptr ? places[n] : n) * s.columns + (i - n * s.columns);
    const float value = to_float(y[i]);
    *at = __fdiv_rn(s.adds ? __fadd_rn(*at, value) : value, s.divisor);
  }
}

/// A warp a row. Keys are smaller where the largest probability is: the sum that is its inverse is at least 1, so its
/// bits grow with it.
__global__ void __launch_bounds__(kMapThreads)
    certainty_keys_kernel(LeastCertainShape s, const float* outputs, std::uint32_t* keys) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kWarp;
  for (std::int64_t n = first; n < s.rows; n += static_cast<std::int64_t>(gridDim.x) * kRowsOfBlock) {
    const float* const row = outputs + n * s.classes;
    float most = -INFINITY, sum = 0;
    for (std::int64_t c = lane; c < s.classes; c += kWarp) most = fmaxf(most, row[c]);
    for (int step = kWarp / 2; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
    for (std::int64_t c = lane; c < s.classes; c += kWarp) sum += expf(row[c] - most);
    for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    if (lane == 0) keys[n] = isnan(sum) ? 0u : ~__float_as_uint(sum);
  }
}

/// The key of the last chosen row, and how many rows of that key are chosen; for all threads of the block.
struct LastKey {
  std::uint32_t key;
  unsigned count;
};

/// Digit by digit from the highest: rows of the prefix found so far are counted by their next digit.
__device__ LastKey find_last_key(const std::uint32_t* keys, std::int64_t rows, unsigned count) {
  __shared__ unsigned counts[kDigits];
  __shared__ std::uint32_t digit;
  __shared__ unsigned left;
  std::uint32_t prefix = 0, mask = 0;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int i = threadIdx.x; i < kDigits; i += kSelectThreads) counts[i] = 0;
    __syncthreads();
    for (std::int64_t n = threadIdx.x; n < rows; n += kSelectThreads)
      if ((keys[n] & mask) == prefix) atomicAdd(counts + ((keys[n] >> shift) & (kDigits - 1)), 1u);
    __syncthreads();
    if (threadIdx.x == 0) {
      left = count;
      for (digit = 0; counts[digit] < left; ++digit) left -= counts[digit];
    }
    __syncthreads();
    count = left;
    prefix |= digit << shift;
    mask |= static_cast<std::uint32_t>(kDigits - 1) << shift;
    __syncthreads();  // before `left` and `digit` are written again
  }
  return {prefix, count};
}

/// Σ of `value` over the block's threads before this one.
__device__ std::uint64_t sum_before(std::uint64_t value) {
  __shared__ std::uint64_t sums[kSelectThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  std::uint64_t sum = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const std::uint64_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == kWarp - 1) sums[warp] = sum;
  __syncthreads();
  std::uint64_t before = 0;
  for (int other = 0; other < warp; ++other) before += sums[other];
  return before + sum - value;
}

/// One block. Each thread has rows in a row, so that the chosen ones keep their order.
__global__ void __launch_bounds__(kSelectThreads)
    least_certain_kernel(LeastCertainShape s, const std::uint32_t* keys, std::int32_t* chosen) {
  const LastKey last = find_last_key(keys, s.rows, static_cast<unsigned>(s.count));
  const std::int64_t begin = threadIdx.x * s.rows / kSelectThreads, end = (threadIdx.x + 1) * s.rows / kSelectThreads;
  std::uint64_t both = 0;  // rows below the last key, in the upper half; rows of it
  for (std::int64_t n = begin; n < end; ++n)
    both += keys[n] < last.key ? std::uint64_t{1} << 32 : keys[n] == last.key ? 1u : 0u;
  const std::uint64_t before = sum_before(both);
  auto below = static_cast<unsigned>(before >> 32), equal = static_cast<unsigned>(before);
  for (std::int64_t n = begin; n < end; ++n) {
    const bool ties = keys[n] == last.key;
    if (keys[n] < last.key || (ties && equal < last.count))
      chosen[below + min(equal, last.count)] = static_cast<std::int32_t>(n);
    if (keys[n] < last.key) ++below;
    if (ties) ++equal;
  }
}

}  // namespace

void view_outputs(const Exec& exec, const ViewOutputShape& s, DType dtype, const void* y, const std::int32_t* places,
                  float* to) {
  const std::int64_t elements = s.rows * s.columns;
  if (elements <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    view_outputs_kernel<<<stride_blocks(elements), kMapThreads, 0, stream_of(exec)>>>(s, static_cast<const T*>(y),
                                                                                      places, to);
    check_launch("view_outputs_kernel");
  });
}

void least_certain(const Exec& exec, const LeastCertainShape& s, const float* outputs, std::int32_t* chosen,
                   Workspace workspace) {
  auto* const keys = static_cast<std::uint32_t*>(workspace.data);
  certainty_keys_kernel<<<stride_blocks(s.rows, kRowsOfBlock), kMapThreads, 0, stream_of(exec)>>>(s, outputs, keys);
  check_launch("certainty_keys_kernel");
  least_certain_kernel<<<1, kSelectThreads, 0, stream_of(exec)>>>(s, keys, chosen);
  check_launch("least_certain_kernel");
}

}  // namespace bantam::kernels::cuda
