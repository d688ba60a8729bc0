// Losses as plain loops: the oracle of the tests. Labels are in range or ignored.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/loss/class_loss.h"
#include "bantam/kernels/loss/dice_loss.h"
#include "bantam/kernels/loss/value_loss.h"

namespace bantam::kernels::reference {

/// Operands of a loss in type T; what a kernel does not read stays empty. `upstream` is a value here.
template <class T>
struct LossOperands {
  std::vector<T> x, targets, weights;
  std::vector<std::int32_t> labels;
  bool mean = true;
  T divisor = 1, upstream = 1;
};

template <class T>
struct LossResult {
  T loss = 0, correct = 0;
  std::vector<T> dx;
};

/// The factor of one of `terms` terms of a sample.
template <class T>
T share_of_term(const LossOperands<T>& in, std::int64_t terms) {
  return (in.mean ? T(1) / static_cast<T>(std::max<std::int64_t>(terms, 1)) : T(1)) / in.divisor;
}

template <class T>
std::vector<T> softmax_of(const T* row, std::int64_t classes) {
  const T top = *std::max_element(row, row + classes);
  std::vector<T> p(row, row + classes);
  T sum = 0;
  for (T& value : p) sum += value = std::exp(value - top);
  for (T& value : p) value /= sum;
  return p;
}

template <class T>
std::int64_t largest_of(const T* row, std::int64_t count) {
  return std::max_element(row, row + count) - row;
}

/// One position's term, and its gradient times `share` into dx.
template <class T>
T class_term(const ClassLossShape& s, const LossOperands<T>& in, std::int64_t row, T share, T* dx) {
  const T* x = in.x.data() + row * s.classes;
  const std::vector<T> p = softmax_of(x, s.classes);
  T loss = 0, weight = 0, match = 0;
  std::vector<T> wq(static_cast<std::size_t>(s.classes));
  for (std::int64_t c = 0; c < s.classes; ++c) {
    const auto at = static_cast<std::size_t>(c);
    const T t = in.labels.empty() ? in.targets[static_cast<std::size_t>(row * s.classes + c)]
                                  : T(in.labels[static_cast<std::size_t>(row)] == c);
    wq[at] = (in.weights.empty() ? T(1) : in.weights[at]) *
             ((T(1) - T(s.smoothing)) * t + T(s.smoothing) / static_cast<T>(s.classes));
    loss += wq[at] * (T(s.epsilon) * (1 - p[at]) - std::log(p[at]));
    weight += wq[at];
    match += wq[at] * p[at];
  }
  T factor = 1;
  if (s.gamma > 0) {
    const T py = p[static_cast<std::size_t>(in.labels[static_cast<std::size_t>(row)])], gamma = T(s.gamma);
    factor = std::pow(1 - py, gamma) - gamma * std::pow(1 - py, gamma - 1) * py * std::log(py);
    loss *= std::pow(1 - py, gamma);
  }
  for (std::size_t c = 0; c < wq.size(); ++c)
    dx[c] = share * factor * (p[c] * weight - wq[c] + T(s.epsilon) * p[c] * (match - wq[c]));
  return loss;
}

template <class T>
LossResult<T> class_loss(const ClassLossShape& s, const LossOperands<T>& in) {
  LossResult<T> out{.dx = std::vector<T>(in.x.size())};
  const auto counts = [&](std::int64_t row) {
    return in.labels.empty() || !s.has_ignored || in.labels[static_cast<std::size_t>(row)] != s.ignored;
  };
  for (std::int64_t n = 0; n < s.batch; ++n) {
    std::int64_t counted = 0, right = 0;
    for (std::int64_t i = 0; i < s.positions; ++i) counted += counts(n * s.positions + i) ? 1 : 0;
    const T share = share_of_term(in, counted);
    for (std::int64_t row = n * s.positions; row < (n + 1) * s.positions; ++row) {
      if (!counts(row)) continue;
      out.loss += share * class_term(s, in, row, share * in.upstream, out.dx.data() + row * s.classes);
      const std::int64_t wanted = in.labels.empty() ? largest_of(in.targets.data() + row * s.classes, s.classes)
                                                    : in.labels[static_cast<std::size_t>(row)];
      right += largest_of(in.x.data() + row * s.classes, s.classes) == wanted ? 1 : 0;
    }
    if (counted > 0) out.correct += static_cast<T>(right) / static_cast<T>(counted);
  }
  return out;
}

/// The term, and its derivative.
template <class T>
std::pair<T, T> value_term(const ValueLossShape& s, T x, T t, T weight) {
  const T d = x - t, p = 1 / (1 + std::exp(-x)), log_p = -std::log1p(std::exp(-x)), log_not = -std::log1p(std::exp(x));
  switch (s.kind) {
    case ValueLossKind::squared:
      return {d * d, 2 * d};
    case ValueLossKind::absolute:
      return {std::abs(d), T(d > 0) - T(d < 0)};
    case ValueLossKind::huber:
      if (std::abs(d) <= T(s.delta)) return {d * d / 2, d};
      return {T(s.delta) * (std::abs(d) - T(s.delta) / 2), d > 0 ? T(s.delta) : -T(s.delta)};
    case ValueLossKind::binary_cross_entropy:
      t = (1 - T(s.smoothing)) * t + T(s.smoothing) / 2;
      return {-weight * t * log_p - (1 - t) * log_not, (1 - t) * p - weight * t * (1 - p)};
    case ValueLossKind::binary_focal:
      break;
  }
  const T alpha = s.alpha < 0 ? T(1) : T(s.alpha) * t + (1 - T(s.alpha)) * (1 - t), gamma = T(s.gamma);
  const T miss = 1 - (p * t + (1 - p) * (1 - t)), entropy = -t * log_p - (1 - t) * log_not;
  return {alpha * std::pow(miss, gamma) * entropy,
          alpha * (std::pow(miss, gamma) * (p - t) +
                   gamma * std::pow(miss, gamma - 1) * entropy * p * (1 - p) * (1 - 2 * t))};
}

template <class T>
LossResult<T> value_loss(const ValueLossShape& s, const LossOperands<T>& in) {
  LossResult<T> out{.dx = std::vector<T>(in.x.size())};
  const T share = share_of_term(in, s.values);
  const bool binary = s.kind == ValueLossKind::binary_cross_entropy || s.kind == ValueLossKind::binary_focal;
  for (std::size_t i = 0; i < in.x.size(); ++i) {
    const T weight = in.weights.empty() ? T(1) : in.weights[i % static_cast<std::size_t>(s.channels)];
    const auto [term, slope] = value_term<T>(s, in.x[i], in.targets[i], weight);
    out.loss += share * term;
    out.dx[i] = share * in.upstream * slope;
    if (binary && (in.x[i] > 0) == (in.targets[i] >= T(0.5))) out.correct += T(1) / static_cast<T>(s.values);
  }
  return out;
}

/// Probabilities of a position: the softmax where there are labels, else sigmoids.
template <class T>
std::vector<T> dice_probabilities(const DiceLossShape& s, const LossOperands<T>& in, std::int64_t row) {
  const T* x = in.x.data() + row * s.classes;
  if (!in.labels.empty()) return softmax_of(x, s.classes);
  std::vector<T> p(x, x + s.classes);
  for (T& value : p) value = 1 / (1 + std::exp(-value));
  return p;
}

/// Loss, correct and gradient of sample `n` added to `out`.
template <class T>
void add_dice_sample(const DiceLossShape& s, const LossOperands<T>& in, std::int64_t n, LossResult<T>& out) {
  const auto classes = static_cast<std::size_t>(s.classes);
  std::vector<T> both(classes), under(classes, T(s.smooth));
  std::int64_t right = 0, counted = 0;
  const bool labelled = !in.labels.empty();
  const auto counts = [&](std::size_t row) { return !labelled || !s.has_ignored || in.labels[row] != s.ignored; };
  const auto target = [&](std::size_t row, std::size_t c) {
    return labelled ? T(in.labels[row] == static_cast<std::int32_t>(c)) : in.targets[row * classes + c];
  };
  const auto first = static_cast<std::size_t>(n * s.positions), last = static_cast<std::size_t>((n + 1) * s.positions);
  for (std::size_t row = first; row < last; ++row) {
    if (!counts(row)) continue;
    const std::vector<T> p = dice_probabilities(s, in, static_cast<std::int64_t>(row));
    counted += labelled ? 1 : s.classes;
    if (labelled && largest_of(in.x.data() + row * classes, s.classes) == in.labels[row]) ++right;
    for (std::size_t c = 0; c < classes; ++c) {
      both[c] += p[c] * target(row, c);
      under[c] += p[c] + target(row, c);
      if (!labelled && (in.x[row * classes + c] > 0) == (target(row, c) >= T(0.5))) ++right;
    }
  }
  const T share = share_of_term(in, s.classes);
  for (std::size_t c = 0; c < classes; ++c) out.loss += share * (1 - (2 * both[c] + T(s.smooth)) / under[c]);
  if (counted > 0) out.correct += static_cast<T>(right) / static_cast<T>(counted);
  for (std::size_t row = first; row < last; ++row) {
    if (!counts(row)) continue;
    const std::vector<T> p = dice_probabilities(s, in, static_cast<std::int64_t>(row));
    std::vector<T> slope(classes);
    T mean = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      slope[c] = ((2 * both[c] + T(s.smooth)) / under[c] - 2 * target(row, c)) / under[c];
      mean += p[c] * slope[c];
    }
    for (std::size_t c = 0; c < classes; ++c)
      out.dx[row * classes + c] = share * in.upstream * p[c] * (labelled ? slope[c] - mean : (1 - p[c]) * slope[c]);
  }
}

template <class T>
LossResult<T> dice_loss(const DiceLossShape& s, const LossOperands<T>& in) {
  LossResult<T> out{.dx = std::vector<T>(in.x.size())};
  for (std::int64_t n = 0; n < s.batch; ++n) add_dice_sample(s, in, n, out);
  return out;
}

}  // namespace bantam::kernels::reference
