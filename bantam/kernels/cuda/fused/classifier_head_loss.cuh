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
  float* b1;       // (hidden)
  float* b2;       // (classes)
  int* labels;     // (rows)

  __device__ LossArrays(float* shared, const ClassifierHeadShape& s, int rows)
      : stride(static_cast<int>(s.hidden) + 1),
        sums(shared),
        hidden(sums + kLossSums),
        dhidden(hidden + rows * stride),
        w2(dhidden + rows * stride),
        logits(w2 + s.classes * stride),
        losses(logits + rows * s.classes),
        correct(losses + rows),
        b1(correct + rows),
        b2(b1 + s.hidden),
        labels(reinterpret_cast<int*>(b2 + s.classes)) {}
};

template <class V>
__device__ V warp_total(V value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

/// What a thread reads of the operands before anything else, so that the latencies of memory pass side by side; it is
/// put into shared memory when it is first needed.
template <class T>
struct EarlyLoads {
  static constexpr int kWeights = 4;  // of w2 a thread; larger ones are read later
  T w2[kWeights], b1, b2;
  std::int32_t label = 0;
  float upstream = 0.0f;

  __device__ EarlyLoads(const ClassifierHeadShape& s, const LossOperands<T>& in, const ClassifierHeadLoss& loss,
                        std::int64_t row0, int rows) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int k = 0; k < kWeights; ++k) {
      if (thread + k * kLossThreads < s.classes * s.hidden) w2[k] = in.w2[thread + k * kLossThreads];
    }
    if (thread < s.hidden) b1 = in.b1[thread];
    if (thread < s.classes) b2 = in.b2[thread];
    if (thread < rows) label = loss.labels[row0 + thread];
    if (loss.upstream != nullptr) upstream = *loss.upstream;
  }
  __device__ void put(const ClassifierHeadShape& s, const LossOperands<T>& in, const LossArrays& at, int rows) const {
    const int thread = static_cast<int>(threadIdx.x), hidden = static_cast<int>(s.hidden);
    const int weights = static_cast<int>(s.classes) * hidden;
#pragma unroll
    for (int k = 0; k < kWeights; ++k) {
      const int i = thread + k * kLossThreads;
      if (i < weights) at.w2[i / hidden * at.stride + i % hidden] = to_float(w2[k]);
    }
    for (int i = thread + kWeights * kLossThreads; i < weights; i += kLossThreads)
      at.w2[i / hidden * at.stride + i % hidden] = to_float(in.w2[i]);
    if (thread < hidden) at.b1[thread] = to_float(b1);
    if (thread < s.classes) at.b2[thread] = to_float(b2);
    if (thread < rows) at.labels[thread] = label;
  }
};

/// hidden = relu(Σ of parts in order + b1), rounded to T. Where there are fewer quads of units than threads, several
/// threads share one quad's parts, in consecutive runs.
template <class T>
__device__ void make_hidden(const ClassifierHeadShape& s, const LossOperands<T>& in, const EarlyLoads<T>& early,
                            const LossArrays& at, std::int64_t row0, int rows) {
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
  early.put(s, in, at, rows);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * static_cast<int>(s.hidden); i += kLossThreads) {
    const int row = i / static_cast<int>(s.hidden), unit = i % static_cast<int>(s.hidden);
    float& to = at.hidden[row * at.stride + unit];
    float sum = groups > 1 ? 0.0f : to;
    for (int group = 0; group < groups && groups > 1; ++group) sum += at.sums[4 * group * items + i];
    sum += at.b1[unit];
    to = to_float(from_float<T>(sum < 0.0f ? 0.0f : sum));  // a NaN stays one
  }
}

/// logits = hidden·w2ᵀ + b2, eight lanes a logit.
__device__ inline void make_logits(const ClassifierHeadShape& s, const LossArrays& at, int rows) {
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
    if (i < count && lane == 0) at.logits[i] = sum + at.b2[c];
  }
}

/// The loss of each row, whether its first largest logit is the label's, and the gradient of its logits in their place;
/// a warp a row, two classes a lane. Terms are taken relative to the largest logit, so that nothing overflows or
/// cancels; a NaN is never the largest, and makes the loss NaN.
__device__ inline void make_losses(const ClassifierHeadShape& s, const ClassifierHeadLoss& loss, float upstream,
                                   const LossArrays& at, int rows) {
  const int classes = static_cast<int>(s.classes), lane = static_cast<int>(threadIdx.x) % 32;
  const float off = s.smoothing / static_cast<float>(classes), on = 1.0f - s.smoothing + off;
  for (int row = static_cast<int>(threadIdx.x) / 32; row < rows; row += kLossWarps) {
    float* logits = at.logits + row * classes;
    const std::int32_t label = at.labels[row];
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
    const float factor = known ? upstream / loss.divisor : NAN;
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

/// The first warp: this block's sums to memory; returns, to lane 0, whether all blocks have done so.
template <class T>
__device__ bool publish_losses(const LossOperands<T>& in, const LossArrays& at, int rows) {
  LossSums sum{};
  if (static_cast<int>(threadIdx.x) < rows) sum = {at.losses[threadIdx.x], at.correct[threadIdx.x]};
  sum.loss = warp_total(sum.loss);
  sum.correct = warp_total(sum.correct);
  if (threadIdx.x != 0) return false;
  in.sums[blockIdx.x] = sum;
  return counted_last(in.counter);
}

/// The last block adds up what all found.
template <class T>
__device__ void finish_losses(const ClassifierHeadShape& s, const LossOperands<T>& in, const ClassifierHeadLoss& loss) {
  MetricSums before{};
  MetricSums* place = loss.ring;
  if (threadIdx.x == 0 && place != nullptr) {
    if (loss.slot != nullptr) place += *loss.slot;
    before = *place;  // on its way while the blocks' sums are read
  }
  const LossSums total = total_of(in.sums, static_cast<int>(gridDim.x));
  if (threadIdx.x != 0) return;
  *loss.loss = static_cast<float>(total.loss / loss.divisor);
  if (place != nullptr)
    *place = {before.loss + total.loss, before.correct + total.correct, before.samples + static_cast<double>(s.batch)};
}

/// A block takes `rows` samples (the last one fewer). Sums are published before the gradients are made, so that the
/// wait for memory passes beside them.
template <class T>
__global__ void __launch_bounds__(kLossThreads)
    classifier_loss_kernel(ClassifierHeadShape s, int rows, LossOperands<T> in, ClassifierHeadLoss loss) {
  extern __shared__ __align__(16) float floats[];
  __shared__ bool last;
  const LossArrays at(floats, s, rows);
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * rows;
  rows = static_cast<int>(min(static_cast<std::int64_t>(rows), s.batch - row0));
  const EarlyLoads<T> early(s, in, loss, row0, rows);
  make_hidden(s, in, early, at, row0, rows);
  __syncthreads();
  make_logits(s, at, rows);
  __syncthreads();
  make_losses(s, loss, early.upstream, at, rows);
  __syncthreads();
  if (threadIdx.x < 32) {
    const bool all = publish_losses(in, at, rows);
    if (threadIdx.x == 0) last = all;
  }
  if (loss.upstream != nullptr) make_gradients(s, in, at, row0, rows);
  __syncthreads();
  if (last) finish_losses(s, in, loss);
}

}  // namespace bantam::kernels::cuda
