// The fused head's small part, one kernel: hidden units from their parts, logits, loss and metrics, and the gradients
// down to the hidden units.
#pragma once

#include <cfloat>

#include "bantam/kernels/classifier_head_rules.h"
#include "bantam/kernels/cuda/last_block.cuh"
#include "bantam/kernels/cuda/numeric.cuh"

namespace bantam::kernels::cuda {

inline constexpr int kLossThreads = 256;
inline constexpr int kLossWarps = kLossThreads / 32;
static_assert(kLossSums == 4 * kLossThreads);

/// One block's losses and right predictions.
struct LossSums {
  double loss;
  double correct;
};

template <class T>
struct LossOperands {
  const float* partials;  // (splits, batch, hidden)
  int splits;
  const T* b1;
  const T* w2;
  const T* b2;
  T* dhidden;              // null: no gradients
  float* small_gradients;  // (blocks, small_gradients)
  LossSums* sums;          // (blocks)
  unsigned* counter;       // of blocks that are done
};

/// A block's arrays in shared memory. Rows of `stride` floats keep lanes of neighbouring rows in different banks.
struct LossArrays {
  int stride;
  float* sums;     // (kLossSums)
  float* hidden;   // (rows, stride)
  float* dhidden;  // (rows, stride)
  float* w2;       // (classes, stride)
  float* logits;   // (rows, classes), then their gradient
  float* losses;   // (rows)
  float* correct;  // (rows)

  __device__ LossArrays(float* shared, const ClassifierHeadShape& s, int rows)
      : stride(static_cast<int>(s.hidden) + 1),
        sums(shared),
        hidden(sums + kLossSums),
        dhidden(hidden + rows * stride),
        w2(dhidden + rows * stride),
        logits(w2 + s.classes * stride),
        losses(logits + rows * s.classes),
        correct(losses + rows) {}
};

template <class V>
__device__ V warp_total(V value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

/// hidden = relu(Σ of parts in order + b1), rounded to T. Where there are fewer quads of units than threads, several
/// threads share one quad's parts, in consecutive runs.
template <class T>
__device__ void make_hidden(const ClassifierHeadShape& s, const LossOperands<T>& in, const LossArrays& at,
                            std::int64_t row0, int rows) {
  const int quads = static_cast<int>(s.hidden) / 4, items = rows * quads;
  int groups = 1;
  while (groups < 16 && 2 * groups * items <= kLossThreads) groups *= 2;
  const int each = (in.splits + groups - 1) / groups;
  for (int i = static_cast<int>(threadIdx.x); i < items * groups; i += kLossThreads) {
    const int item = i % items, group = i / items, row = item / quads, unit = item % quads * 4;
    const float* from = in.partials + (row0 + row) * s.hidden + unit;
    const int begin = group * each, end = min(begin + each, in.splits);
    float4 sum{};
#pragma unroll 8
    for (int split = begin; split < end; ++split) {
      const float4 part = *reinterpret_cast<const float4*>(from + split * s.batch * s.hidden);
      sum.x += part.x;
      sum.y += part.y;
      sum.z += part.z;
      sum.w += part.w;
    }
    if (groups > 1) {  // then there is one item a thread
      *reinterpret_cast<float4*>(at.sums + 4 * i) = sum;
    } else {
      float* to = at.hidden + row * at.stride + unit;
      to[0] = sum.x;
      to[1] = sum.y;
      to[2] = sum.z;
      to[3] = sum.w;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * static_cast<int>(s.hidden); i += kLossThreads) {
    const int row = i / static_cast<int>(s.hidden), unit = i % static_cast<int>(s.hidden);
    float& to = at.hidden[row * at.stride + unit];
    float sum = groups > 1 ? 0.0f : to;
    for (int group = 0; group < groups && groups > 1; ++group) sum += at.sums[4 * group * items + i];
    sum += to_float(in.b1[unit]);
    to = to_float(from_float<T>(sum < 0.0f ? 0.0f : sum));  // a NaN stays one
  }
}

/// logits = hidden·w2ᵀ + b2, eight lanes a logit.
template <class T>
__device__ void make_logits(const ClassifierHeadShape& s, const LossOperands<T>& in, const LossArrays& at, int rows) {
  constexpr int kLanes = 8;
  const int classes = static_cast<int>(s.classes), count = rows * classes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int first = 0; first < count; first += kLossThreads / kLanes) {
    const int i = first + static_cast<int>(threadIdx.x) / kLanes;
    const int row = i / classes, c = i % classes;
    float sum = 0.0f;
    if (i < count) {
      for (int unit = lane; unit < static_cast<int>(s.hidden); unit += kLanes)
        sum = fmaf(at.hidden[row * at.stride + unit], at.w2[c * at.stride + unit], sum);
    }
    for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (i < count && lane == 0) at.logits[i] = sum + to_float(in.b2[c]);
  }
}

/// The loss of each row, whether its first largest logit is the label's, and the gradient of its logits in their place;
/// a warp a row, two classes a lane. Terms are taken relative to the largest logit, so that nothing overflows or
/// cancels; a NaN is never the largest, and makes the loss NaN.
__device__ inline void make_losses(const ClassifierHeadShape& s, const ClassifierHeadLoss& loss, const LossArrays& at,
                                   std::int64_t row0, int rows) {
  const int classes = static_cast<int>(s.classes), lane = static_cast<int>(threadIdx.x) % 32;
  const float off = s.smoothing / static_cast<float>(classes), on = 1.0f - s.smoothing + off;
  for (int row = static_cast<int>(threadIdx.x) / 32; row < rows; row += kLossWarps) {
    float* logits = at.logits + row * classes;
    const std::int32_t label = loss.labels[row0 + row];
    const bool known = label >= 0 && label < classes;
    const bool has[2] = {lane < classes, lane + 32 < classes};
    const float l[2] = {has[0] ? logits[lane] : 0.0f, has[1] ? logits[lane + 32] : 0.0f};
    float top = -INFINITY;
    int best = classes;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (has[k] && l[k] > top) {
        top = l[k];
        best = lane + 32 * k;
      }
    }
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, top, step);
      const int other_best = __shfl_xor_sync(0xffffffffu, best, step);
      if (other > top || (other == top && other_best < best)) {
        top = other;
        best = other_best;
      }
    }
    if (best == classes) best = 0;
    float exps = 0.0f, depths = 0.0f, label_depth = 0.0f;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (!has[k]) continue;
      exps += expf(l[k] - top);
      depths += top - l[k];
      if (lane + 32 * k == label) label_depth = top - l[k];
    }
    exps = warp_total(exps);
    depths = warp_total(depths);
    label_depth = warp_total(label_depth);
    const float log_sum = logf(exps);
    if (lane == 0) {
      const float value = log_sum + (1.0f - s.smoothing) * label_depth + (s.smoothing != 0.0f ? off * depths : 0.0f);
      at.losses[row] = known ? value : NAN;
      at.correct[row] = best == label ? 1.0f : 0.0f;
    }
    if (loss.upstream == nullptr) continue;
    const float factor = known ? *loss.upstream / loss.divisor : NAN;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int c = lane + 32 * k;
      if (has[k]) logits[c] = (expf(l[k] - top - log_sum) - (c == label ? on : off)) * factor;
    }
  }
}

/// dhidden = dlogits·w2 where h > 0, and this block's parts of dw2, db2 and db1.
template <class T>
__device__ void make_gradients(const ClassifierHeadShape& s, const LossOperands<T>& in, const LossArrays& at,
                               std::int64_t row0, int rows) {
  const int classes = static_cast<int>(s.classes), hidden = static_cast<int>(s.hidden);
  for (int i = static_cast<int>(threadIdx.x); i < rows * hidden; i += kLossThreads) {
    const int row = i / hidden, unit = i % hidden;
    float sum = 0.0f;
    for (int c = 0; c < classes; ++c) sum = fmaf(at.logits[row * classes + c], at.w2[c * at.stride + unit], sum);
    const T rounded = from_float<T>(at.hidden[row * at.stride + unit] <= 0.0f ? 0.0f : sum);
    in.dhidden[row0 * hidden + i] = rounded;
    at.dhidden[row * at.stride + unit] = to_float(rounded);
  }
  float* part = in.small_gradients + blockIdx.x * small_gradients(s);
  for (int i = static_cast<int>(threadIdx.x); i < classes * hidden; i += kLossThreads) {
    const int c = i / hidden, unit = i % hidden;
    float sum = 0.0f;
    for (int row = 0; row < rows; ++row)
      sum = fmaf(at.logits[row * classes + c], at.hidden[row * at.stride + unit], sum);
    part[i] = sum;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < classes + hidden; i += kLossThreads) {
    const float* column = i < classes ? at.logits + i : at.dhidden + i - classes;
    const int step = i < classes ? classes : at.stride;
    float sum = 0.0f;
    for (int row = 0; row < rows; ++row) sum += column[row * step];
    part[classes * hidden + i] = sum;
  }
}

/// Thread 0: the sums of `count` blocks' losses, in a fixed order.
__device__ inline LossSums total_of(const LossSums* blocks, int count) {
  __shared__ LossSums warps[kLossWarps];
  LossSums sum{};
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kLossThreads) {
    sum.loss += __ldcg(&blocks[i].loss);
    sum.correct += __ldcg(&blocks[i].correct);
  }
  sum.loss = warp_total(sum.loss);
  sum.correct = warp_total(sum.correct);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  LossSums total{};
  for (const LossSums& warp : warps) {
    total.loss += warp.loss;
    total.correct += warp.correct;
  }
  return total;
}

/// The last block adds up what all found.
template <class T>
__device__ void finish_losses(const ClassifierHeadShape& s, const LossOperands<T>& in, const ClassifierHeadLoss& loss,
                              const LossArrays& at, int rows) {
  if (threadIdx.x < 32) {
    LossSums sum{};
    if (static_cast<int>(threadIdx.x) < rows) sum = {at.losses[threadIdx.x], at.correct[threadIdx.x]};
    sum.loss = warp_total(sum.loss);
    sum.correct = warp_total(sum.correct);
    if (threadIdx.x == 0) in.sums[blockIdx.x] = sum;
  }
  if (!last_of_grid(in.counter)) return;
  const LossSums total = total_of(in.sums, static_cast<int>(gridDim.x));
  if (threadIdx.x != 0) return;
  *loss.loss = static_cast<float>(total.loss / loss.divisor);
  if (loss.ring == nullptr) return;
  MetricSums& sums = loss.ring[loss.slot != nullptr ? *loss.slot : 0];
  sums.loss += total.loss;
  sums.correct += total.correct;
  sums.samples += static_cast<double>(s.batch);
}

/// A block takes `rows` samples (the last one fewer).
template <class T>
__global__ void __launch_bounds__(kLossThreads)
    classifier_loss_kernel(ClassifierHeadShape s, int rows, LossOperands<T> in, ClassifierHeadLoss loss) {
  extern __shared__ __align__(16) float floats[];
  const LossArrays at(floats, s, rows);
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * rows;
  rows = static_cast<int>(min(static_cast<std::int64_t>(rows), s.batch - row0));
  for (int i = static_cast<int>(threadIdx.x); i < s.classes * s.hidden; i += kLossThreads) {
    const int hidden = static_cast<int>(s.hidden);
    at.w2[i / hidden * at.stride + i % hidden] = to_float(in.w2[i]);
  }
  make_hidden(s, in, at, row0, rows);
  __syncthreads();
  make_logits(s, in, at, rows);
  __syncthreads();
  make_losses(s, loss, at, row0, rows);
  __syncthreads();
  if (loss.upstream != nullptr) make_gradients(s, in, at, row0, rows);
  finish_losses(s, in, loss, at, rows);
}

}  // namespace bantam::kernels::cuda
