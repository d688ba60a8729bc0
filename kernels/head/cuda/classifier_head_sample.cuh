// One sample's way through the fused head's small part, by one warp and without a barrier: hidden units from their
// parts, logits, loss, and the gradients of both.
#pragma once

#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/head/classifier_head_rules.h"

namespace bantam::kernels::cuda {

inline constexpr int kLossThreads = 32 * static_cast<int>(kLossWarps);
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// One block's losses and right predictions.
struct LossSums {
  double loss = 0;
  double correct = 0;
};

template <class T>
struct LossOperands {
  const float* partials;  // (parts, batch, hidden)
  int parts;
  const T* b1;
  const T* w2;
  const T* b2;
  T* dhidden;              // null: no gradients
  float* small_gradients;  // (blocks, small_gradients)
  LossSums* sums;          // (blocks)
  unsigned* counter;       // counts blocks that are done
};

/// A block's arrays in shared memory, rows of kWidth units or kClasses classes; zeros past the last.
template <int kUnits, int kClasses>
struct LossArrays {
  static constexpr int kWidth = 32 * kUnits;
  float* w2;       // (kClasses, kWidth)
  float* hidden;   // (rows, kWidth)
  float* dhidden;  // (rows, kWidth)
  float* dlogits;  // (rows, kClasses)

  __device__ LossArrays(float* shared, int rows)
      : w2(shared), hidden(w2 + kClasses * kWidth), dhidden(hidden + rows * kWidth), dlogits(dhidden + rows * kWidth) {}
};

template <class V>
__device__ V warp_total(V value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

/// a, or b where `mask` is all ones: no branch.
__device__ inline float pick(float a, float b, unsigned mask) {
  return __uint_as_float((__float_as_uint(a) & ~mask) | (__float_as_uint(b) & mask));
}

/// Each lane sends half of its sums to the lane whose number differs in bit kKept, and adds what it receives to the
/// others.
template <int kKept>
__device__ inline void fold(float (&values)[16], int lane) {
  constexpr int kStep = 2 * kKept;
  const unsigned upper = (lane & kStep) != 0 ? kAllLanes : 0;
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const float given = pick(values[k + kKept], values[k], upper);
    values[k] = pick(values[k], values[k + kKept], upper) + __shfl_xor_sync(kAllLanes, given, kStep);
  }
}

/// To lane l, the sum over all lanes of values[l / 2].
__device__ inline float totals_of_sixteen(float (&values)[16]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  fold<8>(values, lane);
  fold<4>(values, lane);
  fold<2>(values, lane);
  fold<1>(values, lane);
  return values[0] + __shfl_xor_sync(kAllLanes, values[0], 1);
}

/// Values that the step writes, past the first-level cache, which a kernel launched early cannot trust.
template <int kCount, class T>
__device__ Pack<T, kCount> load_current(const T* from) {
  using Bits =
      std::conditional_t<sizeof(T) * kCount == 4, unsigned, std::conditional_t<sizeof(T) * kCount == 8, uint2, uint4>>;
  const Bits bits = __ldcg(reinterpret_cast<const Bits*>(from));
  return *reinterpret_cast<const Pack<T, kCount>*>(&bits);
}

/// Which class a lane's k-th logit is of: even lanes hold the first sixteen of 32, odd ones the others.
__device__ inline int class_of(int lane, int k) { return lane / 2 + lane % 2 * 16 + k * 32; }
__device__ inline int lane_of_class(int c) { return c % 16 * 2 + c / 16 % 2; }

/// w2 as a lane reads it: its units of each class, zeros past the last. Few classes are kept in registers, many in
/// shared memory.
template <class T, int kUnits, int kClasses>
struct LossWeights {
  static constexpr bool kInRegisters = kClasses == 16;
  Pack<T, kUnits> mine[kInRegisters ? kClasses : 1];
  const float* shared;

  /// `at` (kClasses, 32·kUnits) is used where the weights are not kept in registers.
  __device__ void load(const ClassifierHeadShape& s, const T* w2, float* at) {
    constexpr int kWidth = 32 * kUnits;
    shared = at + static_cast<int>(threadIdx.x) % 32 * kUnits;
    if constexpr (kInRegisters) {
      const int unit = static_cast<int>(threadIdx.x) % 32 * kUnits;
#pragma unroll
      for (int c = 0; c < kClasses; ++c)
        mine[c] = c < s.classes && unit < s.hidden ? load_current<kUnits>(w2 + c * s.hidden + unit) : Pack<T, kUnits>{};
    } else {
#pragma unroll 4
      for (int i = static_cast<int>(threadIdx.x); i < kClasses * kWidth; i += kLossThreads) {
        const int c = i / kWidth, unit = i % kWidth;
        at[i] = c < s.classes && unit < s.hidden ? to_float(__ldcg(w2 + c * s.hidden + unit)) : 0.0f;
      }
      __syncthreads();
    }
  }
  /// The lane's units of class c.
  __device__ void read(int c, float (&w)[kUnits]) const {
    if constexpr (kInRegisters) {
      unpack<kUnits>(mine[c], w);
    } else {
      unpack<kUnits>(shared + c * 32 * kUnits, w);
    }
  }
};

/// The values that a warp loads before the partial sums are ready. kRows: most samples of a warp.
template <class T, int kUnits, int kClasses>
struct LossWarp {
  static constexpr int kLogits = kClasses > 32 ? 2 : 1, kRows = 2;  // of a lane
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);  // so it is seen to be the same for all
  float b1[kUnits] = {}, b2[kLogits] = {};
  float off, on;        // targets
  float factor = 0.0f;  // multiplies the gradient
  std::int32_t labels[kRows] = {};
  LossWeights<T, kUnits, kClasses> w2;

  __device__ int unit() const { return lane * kUnits; }
  __device__ bool has(const ClassifierHeadShape& s, int k) const { return class_of(lane, k) < s.classes; }

  __device__ void load(const ClassifierHeadShape& s, const LossOperands<T>& in, const ClassifierHeadLoss& loss,
                       std::int64_t row0, int rows) {
    if (unit() < s.hidden) {
#pragma unroll
      for (int e = 0; e < kUnits; ++e) b1[e] = to_float(__ldcg(in.b1 + unit() + e));
    }
#pragma unroll
    for (int k = 0; k < kLogits; ++k)
      if (has(s, k)) b2[k] = to_float(__ldcg(in.b2 + class_of(lane, k)));
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = warp + i * static_cast<int>(kLossWarps);
      if (row < rows) labels[i] = __ldcg(loss.labels + row0 + row);
    }
    if (loss.upstream != nullptr) factor = __ldcg(loss.upstream) / loss.divisor;
    off = s.smoothing / static_cast<float>(s.classes);
    on = 1.0f - s.smoothing + off;
  }

  /// relu(Σ of parts in order + b1), rounded to T; a NaN stays one.
  __device__ void make_hidden(const ClassifierHeadShape& s, const LossOperands<T>& in, std::int64_t row,
                              float (&h)[kUnits]) const {
    constexpr int kTogether = 16;  // loads under way
    using Units = Pack<float, kUnits>;
#pragma unroll
    for (int e = 0; e < kUnits; ++e) h[e] = 0.0f;
    if (unit() >= s.hidden) return;
    const float* next = in.partials + row * s.hidden + unit();
    const std::int64_t step = s.batch * s.hidden;
    // Past the end the last part is read twice: loads under a condition would wait for one another.
#pragma unroll 1
    for (int left = in.parts; left > 0; left -= kTogether) {
      Units parts[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        parts[k] = load_pack<kUnits>(next);
        if (k + 1 < left) next += step;
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
#pragma unroll
        for (int e = 0; e < kUnits; ++e) h[e] += k < left ? parts[k].v[e] : 0.0f;
      }
    }
#pragma unroll
    for (int e = 0; e < kUnits; ++e) {
      const float sum = h[e] + b1[e];
      h[e] = to_float(from_float<T>(sum < 0.0f ? 0.0f : sum));
    }
  }

  /// logits = h·w2ᵀ + b2, spread over the lanes as class_of says.
  __device__ void make_logits(const float (&h)[kUnits], float (&logits)[kLogits]) const {
#pragma unroll
    for (int first = 0; first < kClasses; first += 16) {
      float terms[16];
#pragma unroll
      for (int c = 0; c < 16; ++c) {
        float w[kUnits];
        w2.read(first + c, w);
        terms[c] = 0.0f;
#pragma unroll
        for (int e = 0; e < kUnits; ++e) terms[c] = fmaf(h[e], w[e], terms[c]);
      }
      const float total = totals_of_sixteen(terms);
      if (first / 16 % 2 == lane % 2) logits[first / 32] = total + b2[first / 32];
    }
  }

  /// The first class with the largest logit; 0 where all are NaN.
  __device__ int best_of(const ClassifierHeadShape& s, const float (&logits)[kLogits], float top) const {
    constexpr unsigned kEven = 0x55555555u;
#pragma unroll
    for (int k = 0; k < kLogits; ++k) {
      const unsigned best = __ballot_sync(kAllLanes, has(s, k) && logits[k] == top);
      if ((best & kEven) != 0) return class_of(__ffs(static_cast<int>(best & kEven)) - 1, k);
      if (best != 0) return class_of(__ffs(static_cast<int>(best)) - 1, k);
    }
    return 0;
  }

  /// The sample's loss, whether its first largest logit is the label's, and the gradient of its logits in their place.
  /// Terms are taken relative to the largest logit, so that nothing overflows or cancels; a NaN is never the largest,
  /// and makes the loss NaN.
  __device__ void make_loss(const ClassifierHeadShape& s, std::int32_t label, float (&logits)[kLogits],
                            LossSums& sums) const {
    const bool known = label >= 0 && label < s.classes;
    float top = -INFINITY;
#pragma unroll
    for (int k = 0; k < kLogits; ++k)
      if (has(s, k)) top = fmaxf(top, logits[k]);
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
    float exps = 0.0f, depths = 0.0f, label_depth = 0.0f;
#pragma unroll
    for (int k = 0; k < kLogits; ++k) {
      const float depth = top - logits[k];
      if (has(s, k)) {
        exps += expf(-depth);
        depths += depth;
      }
      const float of_label = __shfl_sync(kAllLanes, depth, lane_of_class(label));
      if (label / 32 == k) label_depth = of_label;
    }
    const float log_sum = logf(warp_total(exps));
    float value = log_sum + (1.0f - s.smoothing) * label_depth;
    if (s.smoothing != 0.0f) value += off * warp_total(depths);
    sums.loss += static_cast<double>(known ? value : NAN);
    sums.correct += best_of(s, logits, top) == label ? 1.0 : 0.0;
    const float scale = known ? factor : NAN;
#pragma unroll
    for (int k = 0; k < kLogits; ++k)
      logits[k] = (expf(logits[k] - top - log_sum) - (class_of(lane, k) == label ? on : off)) * scale;
  }

  /// dhidden = dlogits·w2 where h > 0, rounded to T. All three stay in shared memory.
  template <class Arrays>
  __device__ void make_gradient(const ClassifierHeadShape& s, const Arrays& at, int row, const float (&h)[kUnits],
                                const float (&dlogits)[kLogits], T* to) const {
    float* mine = at.dlogits + row * kClasses;
#pragma unroll
    for (int k = 0; k < kLogits; ++k) {
      const int c = class_of(lane, k);
      if (c < kClasses) mine[c] = has(s, k) ? dlogits[k] : 0.0f;
    }
    __syncwarp();
    float dh[kUnits] = {};
#pragma unroll
    for (int first = 0; first < kClasses; first += 4) {
      const auto g = load_pack<4>(mine + first);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float w[kUnits];
        w2.read(first + c, w);
#pragma unroll
        for (int e = 0; e < kUnits; ++e) dh[e] = fmaf(g.v[c], w[e], dh[e]);
      }
    }
#pragma unroll
    for (int e = 0; e < kUnits; ++e) dh[e] = to_float(from_float<T>(h[e] <= 0.0f ? 0.0f : dh[e]));
    if (unit() < s.hidden) repack<kUnits>(dh, to + unit());
    repack<kUnits>(h, at.hidden + row * Arrays::kWidth + unit());
    repack<kUnits>(dh, at.dhidden + row * Arrays::kWidth + unit());
  }
};

}  // namespace bantam::kernels::cuda
