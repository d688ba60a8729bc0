// Softmax cross-entropy on the CPU, rows in parallel; sums over rows run in row order.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/head/softmax_cross_entropy.h"

#include <cmath>
#include <limits>

#include "bantam/kernels/common/cpu/blocks.h"
#include "bantam/kernels/common/cpu/vector_math.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kRowsOfPart = 16;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLowest = -std::numeric_limits<float>::infinity();

bool label_in_range(const SoftmaxCrossEntropyShape& s, std::int32_t label) { return label >= 0 && label < s.classes; }

/// Calls block(values, first class, count) over a row of logits, widened block by block.
template <class T, class Block>
void for_row_blocks(const SoftmaxCrossEntropyShape& s, const T* row, Block&& block) {
  float values[kElementsOfBlock];
  for (std::int64_t c = 0; c < s.classes; c += kElementsOfBlock) {
    const std::int64_t n = std::min(kElementsOfBlock, s.classes - c);
    widen(row + c, values, n);
    block(values, c, n);
  }
}

template <class T>
float row_maximum(const SoftmaxCrossEntropyShape& s, const T* row) {
  float top = kLowest;
  for_row_blocks(s, row, [&](const float* l, std::int64_t, std::int64_t n) {
#pragma omp simd reduction(max : top)
    for (std::int64_t i = 0; i < n; ++i) top = l[i] > top ? l[i] : top;
  });
  return top;
}

/// Σ e^(l - top) and Σ (top - l).
struct RowSums {
  float exp = 0, depth = 0;
};

RowSums add_block(RowSums sums, const float* l, std::int64_t n, float top) {
  float exp_sum = 0, depth_sum = 0;
#pragma omp simd reduction(+ : exp_sum, depth_sum)
  for (std::int64_t i = 0; i < n; ++i) {
    exp_sum += exp_bounded(l[i] - top);
    depth_sum += top - l[i];
  }
  return {sums.exp + exp_sum, sums.depth + depth_sum};
}

struct RowLoss {
  float loss;
  LogSumExp<float> log_sum_exp;
};

/// Every term is taken relative to the largest logit: loss = log Σ e^(l - top) + Σ q·(top - l), all terms >= 0, so that
/// nothing overflows or cancels. A NaN logit makes the sum NaN.
template <class T>
RowLoss row_loss(const SoftmaxCrossEntropyShape& s, const T* row, std::int32_t label) {
  const float top = row_maximum(s, row);
  RowSums sums;
  for_row_blocks(s, row, [&](const float* l, std::int64_t, std::int64_t n) { sums = add_block(sums, l, n, top); });
  const float log_sum = std::log(sums.exp);
  if (!label_in_range(s, label)) return {kNaN, {top, log_sum}};
  const float label_depth = top - static_cast<float>(row[label]);
  float loss = log_sum + (1.0f - s.smoothing) * label_depth;
  if (s.smoothing != 0) loss += s.smoothing / static_cast<float>(s.classes) * sums.depth;
  return {loss, {top, log_sum}};
}

/// One row's values, as the gradient's inner loop reads them. q is `on` at the label and `off` elsewhere.
struct RowGrad {
  LogSumExp<float> log_sum_exp;
  float factor, on, off;
};

/// `label` is relative to the block's first class. dl may be l, so the label's logit is read first.
void grad_block(const RowGrad r, std::int64_t label, const float* l, float* dl, std::int64_t n) {
  const bool has_label = label >= 0 && label < n;
  const float label_logit = has_label ? l[label] : 0.0f;
  const float top = r.log_sum_exp.top, log_sum = r.log_sum_exp.log_sum;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dl[i] = (exp_bounded(l[i] - top - log_sum) - r.off) * r.factor;
  if (has_label) dl[label] = (exp_bounded(label_logit - top - log_sum) - r.on) * r.factor;
}

/// The first class with the largest logit; a NaN is never the largest.
template <class T>
std::int64_t largest_class(const SoftmaxCrossEntropyShape& s, const T* row) {
  float top = kLowest;
  std::int64_t best = 0;
  for_row_blocks(s, row, [&](const float* l, std::int64_t first, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (l[i] > top) {
        top = l[i];
        best = first + i;
      }
    }
  });
  return best;
}

}  // namespace

void softmax_cross_entropy_forward(const Exec& exec, const SoftmaxCrossEntropyShape& shape, DType dtype,
                                   const void* logits, const std::int32_t* labels, float divisor,
                                   const SoftmaxCrossEntropyOutputs& out) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(shape.batch, kRowsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const T* row = static_cast<const T*>(logits) + n * shape.classes;
        const RowLoss found = row_loss(shape, row, labels[n]);
        out.losses[n] = found.loss;
        out.log_sum_exp[n] = found.log_sum_exp;
        out.correct[n] = largest_class(shape, row) == labels[n] ? 1 : 0;
      }
    });
  });
  double total = 0;
  for (std::int64_t n = 0; n < shape.batch; ++n) total += out.losses[n];
  *out.loss = static_cast<float>(total / divisor);
  if (out.ring == nullptr) return;
  MetricSums& sums = out.ring[out.slot != nullptr ? *out.slot : 0];
  sums.loss += total;
  for (std::int64_t n = 0; n < shape.batch; ++n) sums.correct += out.correct[n];
  sums.samples += static_cast<double>(shape.batch);
}

void softmax_cross_entropy_grad(const Exec& exec, const SoftmaxCrossEntropyShape& shape, DType dtype,
                                const SoftmaxCrossEntropyGradInputs& in, void* dlogits) {
  const float factor = *in.upstream / in.divisor;
  const float off = shape.smoothing / static_cast<float>(shape.classes), on = 1.0f - shape.smoothing + off;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(shape.batch, kRowsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const std::int64_t at = n * shape.classes;
        const RowGrad values{in.log_sum_exp[n], label_in_range(shape, in.labels[n]) ? factor : kNaN, on, off};
        std::int64_t label = in.labels[n];  // relative to the block
        const auto block = [&](const float* l, float* dl, std::int64_t count) {
          grad_block(values, label, l, dl, count);
          label -= count;
        };
        map_range(at, at + shape.classes, static_cast<const T*>(in.logits), static_cast<T*>(dlogits), block);
      }
    });
  });
}

}  // namespace bantam::kernels::cpu
