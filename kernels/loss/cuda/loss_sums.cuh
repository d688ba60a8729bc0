// Internal: sums of a loss on CUDA in a fixed order: parts to samples by a block each, samples by one block.
#pragma once

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/loss/loss_rules.h"

namespace bantam::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kLossWarps = 4;          // of a block whose warps work apart
inline constexpr int kSampleThreads = 128;    // of a block that adds a sample's parts
inline constexpr int kLossSumThreads = 1024;  // of the block that adds the samples

template <class T>
__device__ T warp_sum(T value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

/// The sum over a block of kThreads, for thread 0.
template <int kThreads, class T>
__device__ T block_sum(T value) {
  __shared__ T shared[kThreads / kWarp];
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x < kWarp) value = warp_sum(threadIdx.x < kThreads / kWarp ? shared[threadIdx.x] : T(0));
  __syncthreads();
  return value;
}

/// A part's terms, of all lanes of a warp.
__device__ inline LossTerms warp_terms(const LossTerms& lane) {
  return {warp_sum(lane.loss), warp_sum(lane.right), warp_sum(lane.counted)};
}

template <int kThreads>
__device__ LossTerms block_terms(const LossTerms* parts, std::int64_t count) {
  LossTerms mine;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    mine.loss += parts[i].loss;
    mine.right += parts[i].right;
    mine.counted += parts[i].counted;
  }
  return {block_sum<kThreads>(mine.loss), block_sum<kThreads>(mine.right), block_sum<kThreads>(mine.counted)};
}

/// A block a sample.
static __global__ void __launch_bounds__(kSampleThreads)
    sum_parts_kernel(std::int64_t parts_of_sample, const LossTerms* parts, LossTerms* samples) {
  const LossTerms sample = block_terms<kSampleThreads>(parts + blockIdx.x * parts_of_sample, parts_of_sample);
  if (threadIdx.x == 0) samples[blockIdx.x] = sample;
}

static __global__ void __launch_bounds__(kLossSumThreads)
    sum_samples_kernel(std::int64_t batch, const LossTerms* samples, std::int64_t terms, LossScale scale,
                       LossOutputs out) {
  double loss = 0, correct = 0, counted = 0;
  for (std::int64_t n = threadIdx.x; n < batch; n += kLossSumThreads) {
    const LossTerms sample = samples[n];
    loss += sample_loss(scale, sample.loss, terms > 0 ? terms : sample.counted);
    if (sample.counted == 0) continue;
    correct += static_cast<double>(sample.right) / static_cast<double>(sample.counted);
    ++counted;
  }
  loss = block_sum<kLossSumThreads>(loss);
  correct = block_sum<kLossSumThreads>(correct);
  counted = block_sum<kLossSumThreads>(counted);
  if (threadIdx.x != 0) return;
  *out.loss = static_cast<float>(loss / static_cast<double>(scale.divisor));
  if (out.ring == nullptr) return;
  MetricSums& sums = out.ring[out.slot != nullptr ? *out.slot : 0];
  sums.loss += loss;
  sums.correct += correct;
  sums.samples += counted;
}

/// `samples` (batch) → loss and counts. A sample's mean is over `terms`; 0: over those that count.
inline void launch_sample_sums(const Exec& exec, std::int64_t batch, const LossTerms* samples, std::int64_t terms,
                               const LossScale& scale, const LossOutputs& out) {
  if (out.loss == nullptr) return;
  sum_samples_kernel<<<1, kLossSumThreads, 0, stream_of(exec)>>>(batch, samples, terms, scale, out);
  check_launch("sum_samples_kernel");
}

/// The parts' terms → loss and counts.
inline void launch_loss_sums(const Exec& exec, const LossSumsLayout& layout, const LossSumsMemory& memory,
                             const LossScale& scale, const LossOutputs& out) {
  if (out.loss == nullptr) return;
  if (layout.parts > 1 && layout.batch > 0) {
    sum_parts_kernel<<<static_cast<unsigned>(layout.batch), kSampleThreads, 0, stream_of(exec)>>>(
        layout.parts, memory.parts, memory.samples);
    check_launch("sum_parts_kernel");
  }
  launch_sample_sums(exec, layout.batch, memory.samples, 0, scale, out);
}

/// Blocks of kLossWarps warps that work apart.
inline unsigned warp_blocks(std::int64_t warps) { return static_cast<unsigned>((warps + kLossWarps - 1) / kLossWarps); }

}  // namespace bantam::kernels::cuda
