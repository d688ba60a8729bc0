// Softmax cross-entropy on CUDA: a warp a row; sums over rows by one block, in a fixed order.
#include <algorithm>
#include <climits>
#include <cmath>

#include "bantam/kernels/cuda/check.h"
#include "bantam/kernels/cuda/numeric.cuh"
#include "bantam/kernels/softmax_cross_entropy.h"

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

__device__ inline float warp_max(float value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
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

/// Every term is taken relative to the largest logit: loss = log Σ e^(l - top) + Σ q·(top - l), all terms >= 0, so that
/// nothing overflows or cancels. A NaN logit makes the sum NaN.
template <class T>
__global__ void row_loss_kernel(SoftmaxCrossEntropyShape s, const T* logits, const std::int32_t* labels, float* losses,
                                float* log_sum_exp) {
  const std::int64_t n = row_of_warp();
  if (n >= s.batch) return;
  const T* row = logits + n * s.classes;
  const int lane = threadIdx.x % kWarp;
  float top = -INFINITY;
  for (std::int64_t c = lane; c < s.classes; c += kWarp) top = fmaxf(top, to_float(row[c]));
  top = warp_max(top);
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
  log_sum_exp[n] = top + log_sum;
  const std::int32_t label = labels[n];
  float loss = NAN;
  if (label_in_range(s, label)) {
    loss = log_sum + (1.0f - s.smoothing) * (top - to_float(row[label]));
    if (s.smoothing != 0) loss += s.smoothing / static_cast<float>(s.classes) * depth_sum;
  }
  losses[n] = loss;
}

__global__ void __launch_bounds__(kSumThreads)
    mean_loss_kernel(std::int64_t batch, const float* losses, float divisor, float* loss) {
  __shared__ double shared[kSumWarps];
  double sum = 0;
  for (std::int64_t n = threadIdx.x; n < batch; n += kSumThreads) sum += losses[n];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum / divisor);
}

/// dlogits may be logits: each element is read and written by the same thread only.
template <class T>
__global__ void row_grad_kernel(SoftmaxCrossEntropyShape s, const T* logits, const std::int32_t* labels,
                                const float* log_sum_exp, const float* upstream, float divisor, T* dlogits) {
  const std::int64_t n = row_of_warp();
  if (n >= s.batch) return;
  const std::int32_t label = labels[n];
  const float factor = label_in_range(s, label) ? *upstream / divisor : NAN;
  const float log_sum = log_sum_exp[n];
  const float off = s.smoothing / static_cast<float>(s.classes), on = 1.0f - s.smoothing + off;
  for (std::int64_t c = threadIdx.x % kWarp; c < s.classes; c += kWarp) {
    const std::int64_t i = n * s.classes + c;
    const float q = c == label ? on : off;
    dlogits[i] = from_float<T>((expf(to_float(logits[i]) - log_sum) - q) * factor);
  }
}

/// The first class with the largest logit, for all lanes of the warp; a NaN is never the largest.
template <class T>
__device__ std::int64_t largest_class(const SoftmaxCrossEntropyShape& s, const T* row) {
  float top = -INFINITY;
  std::int64_t best = LLONG_MAX;
  for (std::int64_t c = threadIdx.x % kWarp; c < s.classes; c += kWarp) {
    const float logit = to_float(row[c]);
    if (logit > top) {
      top = logit;
      best = c;
    }
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const float other_top = __shfl_xor_sync(kAllLanes, top, step);
    const std::int64_t other_best = __shfl_xor_sync(kAllLanes, static_cast<long long>(best), step);
    if (other_top > top || (other_top == top && other_best < best)) {
      top = other_top;
      best = other_best;
    }
  }
  return best == LLONG_MAX ? 0 : best;
}

template <class T>
__global__ void __launch_bounds__(kSumThreads)
    metrics_kernel(SoftmaxCrossEntropyShape s, const T* logits, const std::int32_t* labels, const float* losses,
                   MetricSums* ring, const std::int32_t* slot) {
  __shared__ double shared_loss[kSumWarps];
  __shared__ int shared_correct[kSumWarps];
  int correct = 0;
  for (std::int64_t n = threadIdx.x / kWarp; n < s.batch; n += kSumWarps) {
    const std::int64_t predicted = largest_class(s, logits + n * s.classes);
    if (threadIdx.x % kWarp == 0 && predicted == labels[n]) ++correct;
  }
  double loss = 0;
  for (std::int64_t n = threadIdx.x; n < s.batch; n += kSumThreads) loss += losses[n];
  correct = block_sum(correct, shared_correct);
  loss = block_sum(loss, shared_loss);
  if (threadIdx.x != 0) return;
  MetricSums& sums = ring[slot != nullptr ? *slot : 0];
  sums.loss += loss;
  sums.correct += correct;
  sums.samples += static_cast<double>(s.batch);
}

unsigned row_blocks(std::int64_t batch) { return static_cast<unsigned>((batch + kRowsOfBlock - 1) / kRowsOfBlock); }

}  // namespace

void softmax_cross_entropy_forward(const Exec& exec, const SoftmaxCrossEntropyShape& shape, DType dtype,
                                   const void* logits, const std::int32_t* labels, float divisor, float* losses,
                                   float* log_sum_exp, float* loss) {
  if (shape.batch > 0) {
    dispatch_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      row_loss_kernel<<<row_blocks(shape.batch), kRowsOfBlock * kWarp, 0, stream_of(exec)>>>(
          shape, static_cast<const T*>(logits), labels, losses, log_sum_exp);
      check_launch("row_loss_kernel");
    });
  }
  mean_loss_kernel<<<1, kSumThreads, 0, stream_of(exec)>>>(shape.batch, losses, divisor, loss);
  check_launch("mean_loss_kernel");
}

void softmax_cross_entropy_grad(const Exec& exec, const SoftmaxCrossEntropyShape& shape, DType dtype,
                                const void* logits, const std::int32_t* labels, const float* log_sum_exp,
                                const float* upstream, float divisor, void* dlogits) {
  if (shape.batch <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    row_grad_kernel<<<row_blocks(shape.batch), kRowsOfBlock * kWarp, 0, stream_of(exec)>>>(
        shape, static_cast<const T*>(logits), labels, log_sum_exp, upstream, divisor, static_cast<T*>(dlogits));
    check_launch("row_grad_kernel");
  });
}

void classification_metrics(const Exec& exec, const SoftmaxCrossEntropyShape& shape, DType dtype, const void* logits,
                            const std::int32_t* labels, const float* losses, MetricSums* ring,
                            const std::int32_t* slot) {
  if (shape.batch <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    metrics_kernel<<<1, kSumThreads, 0, stream_of(exec)>>>(shape, static_cast<const T*>(logits), labels, losses, ring,
                                                           slot);
    check_launch("metrics_kernel");
  });
}

}  // namespace bantam::kernels::cuda
