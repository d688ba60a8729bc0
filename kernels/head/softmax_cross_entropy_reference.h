// Softmax cross-entropy as plain loops: the oracle of the tests. Labels are taken to be in range.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "bantam/kernels/head/softmax_cross_entropy.h"

namespace bantam::kernels::reference {

/// q_c = (1 - smoothing)·[c = label] + smoothing/classes.
template <class T>
T smoothed_target(const SoftmaxCrossEntropyShape& s, std::int64_t c, std::int32_t label) {
  const T uniform = T(s.smoothing) / static_cast<T>(s.classes);
  return c == label ? T(1) - T(s.smoothing) + uniform : uniform;
}

/// Returns Σ losses / divisor.
template <class T>
T softmax_cross_entropy_forward(const SoftmaxCrossEntropyShape& s, const T* logits, const std::int32_t* labels,
                                T divisor, T* losses, LogSumExp<T>* log_sum_exp) {
  T total = 0;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    const T* row = logits + n * s.classes;
    const T top = *std::max_element(row, row + s.classes);
    T sum = 0, depth = 0;
    for (std::int64_t c = 0; c < s.classes; ++c) {
      sum += std::exp(row[c] - top);
      depth += smoothed_target<T>(s, c, labels[n]) * (top - row[c]);
    }
    log_sum_exp[n] = {top, std::log(sum)};
    losses[n] = log_sum_exp[n].log_sum + depth;
    total += losses[n];
  }
  return total / divisor;
}

template <class T>
void softmax_cross_entropy_grad(const SoftmaxCrossEntropyShape& s, const T* logits, const std::int32_t* labels,
                                const LogSumExp<T>* log_sum_exp, T upstream, T divisor, T* dlogits) {
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t c = 0; c < s.classes; ++c) {
      const std::int64_t i = n * s.classes + c;
      const T q = smoothed_target<T>(s, c, labels[n]);
      dlogits[i] = (std::exp(logits[i] - log_sum_exp[n].top - log_sum_exp[n].log_sum) - q) * upstream / divisor;
    }
  }
}

/// sums += those of this batch.
template <class T>
void classification_metrics(const SoftmaxCrossEntropyShape& s, const T* logits, const std::int32_t* labels,
                            const T* losses, MetricSums* sums) {
  for (std::int64_t n = 0; n < s.batch; ++n) {
    const T* row = logits + n * s.classes;
    sums->loss += losses[n];
    sums->correct += std::max_element(row, row + s.classes) - row == labels[n] ? 1 : 0;
    sums->samples += 1;
  }
}

}  // namespace bantam::kernels::reference
