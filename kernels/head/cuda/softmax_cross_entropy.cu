// Softmax cross-entropy on CUDA: a warp a row; sums over rows by one block, in a fixed order.
#include <algorithm>
#include <climits>
#include <cmath>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/head/softmax_cross_entropy.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kRowsOfBlock = 4;
constexpr int kSumThreads = 1024;
constexpr int kSumWarps = kSumThreads / kWarp;
constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
__device__ T warp_sum(T value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

/// The sum over a block of kSumThreads, for thread 0. `shared` holds kSumWarps values.
template <class T>
__device__ T block_sum(T value, T* shared) {
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x < kWarp) value = warp_sum(shared[threadIdx.x]);
  __syncthreads();
  return value;
}

__device__ inline bool label_in_range(const SoftmaxCrossEntropyShape& s, std::int32_t label) {
  return label >= 0 && label < s.classes;
}

__device__ inline std::int64_t row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kWarp;
}

/// The largest logit of a row and its first class (0 where every logit is NaN), for all lanes of the warp; a NaN is
/// never the largest.
struct Largest {
  float logit = -INFINITY;
  int c = INT_MAX;
};

template <class T>
__device__ Largest largest_logit(const SoftmaxCrossEntropyShape& s, const T* row) {
  Largest best;
  for (int c = static_cast<int>(threadIdx.x) % kWarp; c < s.classes; c += kWarp) {
    const float logit = to_float(row[c]);
    if (logit > best.logit) best = {logit, c};
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Largest other{__shfl_xor_sync(kAllLanes, best.logit, step), __shfl_xor_sync(kAllLanes, best.c, step)};
    if (other.logit > best.logit || (other.logit == best.logit && other.c < best.c)) best = other;
  }
  if (best.c == INT_MAX) best.c = 0;
  return best;
}

/// Every term is taken relative to the largest logit: loss = log Σ e^(l - top) + Σ q·(top - l), all terms >= 0, so that
/// nothing overflows or cancels. A NaN logit makes the sum NaN.
template <class T>
__global__ void row_loss_kernel(SoftmaxCrossEntropyShape s, const T* logits, const std::int32_t* labels,
                                SoftmaxCrossEntropyOutputs out) {
  const std::int64_t n = row_of_warp();
  if (n >= s.batch) return;
  const T* row = logits + n * s.classes;
  const int lane = threadIdx.x % kWarp;
  const Largest best = largest_logit(s, row);
  const float top = best.logit;
  float exp_sum = 0, depth_sum = 0;
  for (std::int64_t c = lane; c < s.classes; c += kWarp) {
    const float logit = to_float(row[c]);
    exp_sum += expf(logit - top);
    depth_sum += top - logit;
  }
  exp_sum = warp_sum(exp_sum);
  depth_sum = warp_sum(depth_sum);
  if (lane != 0) return;
  const float log_sum = logf(exp_sum);
  out.log_sum_exp[n] = {top, log_sum};
  const std::int32_t label = labels[n];
  float loss = NAN;
  if (label_in_range(s, label)) {
    loss = log_sum + (1.0f - s.smoothing) * (top - to_float(row[label]));
    if (s.smoothing != 0) loss += s.smoothing / static_cast<float>(s.classes) * depth_sum;
  }
  out.losses[n] = loss;
  out.correct[n] = best.c == label ? 1 : 0;
}

__global__ void __launch_bounds__(kSumThreads)
    sum_losses_kernel(std::int64_t batch, float divisor, SoftmaxCrossEntropyOutputs out) {
  __shared__ double shared_loss[kSumWarps];
  __shared__ int shared_correct[kSumWarps];
  double loss = 0;
  int correct = 0;
#pragma unroll 4
  for (std::int64_t n = threadIdx.x; n < batch; n += kSumThreads) {
    loss += out.losses[n];
    correct += out.correct[n];
  }
  loss = block_sum(loss, shared_loss);
  correct = block_sum(correct, shared_correct);
  if (threadIdx.x != 0) return;
  *out.loss = static_cast<float>(loss / divisor);
  if (out.ring == nullptr) return;
  MetricSums& sums = out.ring[out.slot != nullptr ? *out.slot : 0];
  sums.loss += loss;
  sums.correct += correct;
  sums.samples += static_cast<double>(batch);
}

/// dlogits may be logits: each element is read and written by the same thread only.
template <class T>
__global__ void row_grad_kernel(SoftmaxCrossEntropyShape s, const T* logits, const std::int32_t* labels,
                                const LogSumExp<float>* log_sum_exp, const float* upstream, float divisor, T* dlogits) {
  const std::int64_t n = row_of_warp();
  if (n >= s.batch) return;
  const std::int32_t label = labels[n];
  const float factor = label_in_range(s, label) ? *upstream / divisor : NAN;
  const auto [top, log_sum] = log_sum_exp[n];
  const float off = s.smoothing / static_cast<float>(s.classes), on = 1.0f - s.smoothing + off;
  for (std::int64_t c = threadIdx.x % kWarp; c < s.classes; c += kWarp) {
    const std::int64_t i = n * s.classes + c;
    const float q = c == label ? on : off;
    dlogits[i] = from_float<T>((expf(to_float(logits[i]) - top - log_sum) - q) * factor);
  }
}

unsigned row_blocks(std::int64_t batch) { return static_cast<unsigned>((batch + kRowsOfBlock - 1) / kRowsOfBlock); }

}  // namespace

void softmax_cross_entropy_forward(const Exec& exec, const SoftmaxCrossEntropyShape& shape, DType dtype,
                                   const void* logits, const std::int32_t* labels, float divisor,
                                   const SoftmaxCrossEntropyOutputs& out) {
  if (shape.batch > 0) {
    dispatch_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      row_loss_kernel<<<row_blocks(shape.batch), kRowsOfBlock * kWarp, 0, stream_of(exec)>>>(
          shape, static_cast<const T*>(logits), labels, out);
      check_launch("row_loss_kernel");
    });
  }
  sum_losses_kernel<<<1, kSumThreads, 0, stream_of(exec)>>>(shape.batch, divisor, out);
  check_launch("sum_losses_kernel");
}

void softmax_cross_entropy_grad(const Exec& exec, const SoftmaxCrossEntropyShape& shape, DType dtype,
                                const SoftmaxCrossEntropyGradInputs& in, void* dlogits) {
  if (shape.batch <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    row_grad_kernel<<<row_blocks(shape.batch), kRowsOfBlock * kWarp, 0, stream_of(exec)>>>(
        shape, static_cast<const T*>(in.logits), in.labels, in.log_sum_exp, in.upstream, in.divisor,
        static_cast<T*>(dlogits));
    check_launch("row_grad_kernel");
  });
}

}  // namespace bantam::kernels::cuda
