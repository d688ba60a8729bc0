// Counts and sums of metrics as plain loops: the oracle of the tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/metric/metric_counts.h"

namespace bantam::kernels::reference {

/// The first class with the largest output; a NaN is never the largest.
inline std::int64_t predicted_class(const float* row, std::int64_t classes) {
  std::int64_t best = 0;
  for (std::int64_t c = 0; c < classes; ++c)
    if (row[c] > row[best] || (std::isnan(row[best]) && !std::isnan(row[c]))) best = c;
  return best;
}

inline bool counts(std::int32_t label, std::int64_t classes, std::int32_t ignored) {
  return label >= 0 && label < classes && label != ignored;
}

/// Whether fewer than k outputs come before the label's.
inline bool among_largest(const float* row, std::int64_t classes, std::int64_t label, std::int64_t k) {
  std::int64_t before = 0;
  for (std::int64_t c = 0; c < classes; ++c) before += row[c] > row[label] || (row[c] == row[label] && c < label);
  return before < k && !std::isnan(row[label]);
}

inline std::vector<double> label_counts(const LabelCountShape& s, const float* output, const std::int32_t* labels) {
  const std::int64_t sums = s.kind == LabelCount::top_k       ? 2
                            : s.kind == LabelCount::confusion ? s.classes * s.classes
                                                              : 3 * s.classes;
  std::vector<double> to(static_cast<std::size_t>(sums));
  const auto add = [&to](std::int64_t i) { to[static_cast<std::size_t>(i)] += 1; };
  for (std::int64_t n = 0; n < s.rows; ++n) {
    const float* row = output + n * s.classes;
    const std::int32_t label = labels[n];
    if (!counts(label, s.classes, s.ignored)) continue;
    const std::int64_t predicted = predicted_class(row, s.classes);
    if (s.kind == LabelCount::top_k) {
      if (among_largest(row, s.classes, label, s.k)) add(0);
      add(1);
    } else if (s.kind == LabelCount::confusion) {
      add(label * s.classes + predicted);
    } else if (predicted == label) {
      add(label);
    } else {
      add(s.classes + predicted);
      add(2 * s.classes + label);
    }
  }
  return to;
}

inline std::vector<double> target_counts(const TargetCountShape& s, const float* output, const float* targets) {
  std::vector<double> to(static_cast<std::size_t>(3 * s.classes));
  for (std::int64_t i = 0; i < s.rows * s.classes; ++i) {
    const bool predicted = output[i] >= s.cut, present = targets[i] >= 0.5f;
    const std::int64_t kind = predicted && present ? 0 : predicted ? 1 : present ? 2 : 3;
    if (kind < 3) to[static_cast<std::size_t>(kind * s.classes + i % s.classes)] += 1;
  }
  return to;
}

/// In double, where a score may fall into the next bin: tests choose scores that do not.
inline std::vector<double> score_histograms(const ScoreShape& s, const float* output, const ScoreTruth& truth) {
  std::vector<double> to(static_cast<std::size_t>(s.classes * 2 * s.bins));
  for (std::int64_t n = 0; n < s.rows; ++n) {
    if (truth.labels != nullptr && !counts(truth.labels[n], s.classes, s.ignored)) continue;
    const float* row = output + n * s.classes;
    const double top = *std::max_element(row, row + s.classes);
    double sum = 0;
    for (std::int64_t c = 0; c < s.classes; ++c) sum += std::exp(row[c] - top);
    for (std::int64_t c = 0; c < s.classes; ++c) {
      const bool softmax = truth.labels != nullptr;
      const double score = softmax ? std::exp(row[c] - top) / sum : 1 / (1 + std::exp(-static_cast<double>(row[c])));
      const bool positive = softmax ? truth.labels[n] == c : truth.targets[n * s.classes + c] >= 0.5f;
      const std::int64_t bin = std::clamp<std::int64_t>(static_cast<std::int64_t>(score * s.bins), 0, s.bins - 1);
      to[static_cast<std::size_t>((2 * c + (positive ? 1 : 0)) * s.bins + bin)] += 1;
    }
  }
  return to;
}

inline std::vector<double> error_sums(const ErrorShape& s, const float* output, const float* targets) {
  std::vector<double> to(static_cast<std::size_t>(kErrorSums * s.columns + 1));
  for (std::int64_t i = 0; i < s.rows * s.columns; ++i) {
    const double t = targets[i], error = static_cast<double>(output[i]) - t;
    const double values[] = {error * error, std::abs(error), t, t * t};
    for (std::int64_t k = 0; k < kErrorSums; ++k)
      to[static_cast<std::size_t>(k * s.columns + i % s.columns)] += values[k];
  }
  to.back() = static_cast<double>(s.rows);
  return to;
}

}  // namespace bantam::kernels::reference
