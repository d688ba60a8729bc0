// Counts and sums of metrics on the CPU, rows in parallel: whole numbers are added in any order, others part by part.
#include "bantam/kernels/metric/metric_counts.h"

#include <atomic>
#include <cmath>
#include <limits>

#include "bantam/kernels/common/cpu/blocks.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kRowsOfPart = 256;

double* sums_of(const MetricTarget& to) { return to.ring + (to.slot != nullptr ? *to.slot : 0) * to.count; }

/// By any thread: a whole number below 2^53 has no rounding.
void count_one(double* sum) { std::atomic_ref<double>(*sum).fetch_add(1.0, std::memory_order_relaxed); }

/// Calls row(pointer, number) for each row of `dtype`.
template <class Row>
void for_rows(const Exec& exec, std::int64_t rows, std::int64_t classes, DType dtype, const void* output, Row&& row) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(rows, kRowsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) row(static_cast<const T*>(output) + n * classes, n);
    });
  });
}

bool is_counted(std::int32_t label, std::int64_t classes, std::int32_t ignored) {
  return label >= 0 && label < classes && label != ignored;
}

template <class T>
std::int64_t predicted_class(const T* row, std::int64_t classes) {
  float top = -std::numeric_limits<float>::infinity();
  std::int64_t best = 0;
  bool found = false;
  for (std::int64_t c = 0; c < classes; ++c) {
    const auto value = static_cast<float>(row[c]);
    if (!(value > top || (!found && value == top))) continue;
    top = value;
    best = c;
    found = true;
  }
  return best;
}

template <class T>
bool among_largest(const T* row, std::int64_t classes, std::int64_t label, std::int64_t k) {
  const auto own = static_cast<float>(row[label]);
  std::int64_t before = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    const auto value = static_cast<float>(row[c]);
    before += value > own || (value == own && c < label) ? 1 : 0;
  }
  return before < k && !std::isnan(own);
}

template <class T>
void count_row(const LabelCountShape& s, const T* row, std::int32_t label, double* sums) {
  if (s.kind == LabelCount::top_k) {
    if (among_largest(row, s.classes, label, s.k)) count_one(sums);
    return count_one(sums + 1);
  }
  const std::int64_t predicted = predicted_class(row, s.classes);
  if (s.kind == LabelCount::confusion) return count_one(sums + label * s.classes + predicted);
  if (predicted == label) return count_one(sums + label);
  count_one(sums + s.classes + predicted);
  count_one(sums + 2 * s.classes + label);
}

std::int64_t bin_of(float score, std::int32_t bins) {
  if (!(score > 0)) return 0;
  return std::min<std::int64_t>(static_cast<std::int64_t>(score * static_cast<float>(bins)), bins - 1);
}

template <class T>
void count_softmax(const ScoreShape& s, const T* row, std::int32_t label, double* sums) {
  float top = -std::numeric_limits<float>::infinity(), sum = 0;
  for (std::int64_t c = 0; c < s.classes; ++c) top = std::max(top, static_cast<float>(row[c]));
  for (std::int64_t c = 0; c < s.classes; ++c) sum += std::exp(static_cast<float>(row[c]) - top);
  for (std::int64_t c = 0; c < s.classes; ++c) {
    const float score = std::exp(static_cast<float>(row[c]) - top) / sum;
    count_one(sums + (2 * c + (c == label ? 1 : 0)) * s.bins + bin_of(score, s.bins));
  }
}

template <class T>
void count_sigmoid(const ScoreShape& s, const T* row, const float* targets, double* sums) {
  for (std::int64_t c = 0; c < s.classes; ++c) {
    const float score = 1.0f / (1.0f + std::exp(-static_cast<float>(row[c])));
    count_one(sums + (2 * c + (targets[c] >= 0.5f ? 1 : 0)) * s.bins + bin_of(score, s.bins));
  }
}

/// The sums of rows [begin, end), (kErrorSums, columns).
template <class T>
void add_errors(const ErrorShape& s, std::int64_t begin, std::int64_t end, const T* output, const float* targets,
                double* sums) {
  std::fill_n(sums, kErrorSums * s.columns, 0.0);
  for (std::int64_t n = begin; n < end; ++n) {
    for (std::int64_t c = 0; c < s.columns; ++c) {
      const double t = targets[n * s.columns + c];
      const double error = static_cast<double>(static_cast<float>(output[n * s.columns + c])) - t;
      sums[c] += error * error;
      sums[s.columns + c] += std::abs(error);
      sums[2 * s.columns + c] += t;
      sums[3 * s.columns + c] += t * t;
    }
  }
}

}  // namespace

void label_counts(const Exec& exec, const LabelCountShape& s, DType dtype, const void* output,
                  const std::int32_t* labels, const MetricTarget& to) {
  double* const sums = sums_of(to);
  for_rows(exec, s.rows, s.classes, dtype, output, [&](const auto* row, std::int64_t n) {
    if (is_counted(labels[n], s.classes, s.ignored)) count_row(s, row, labels[n], sums);
  });
}

void target_counts(const Exec& exec, const TargetCountShape& s, DType dtype, const void* output, const float* targets,
                   const MetricTarget& to) {
  double* const sums = sums_of(to);
  for_rows(exec, s.rows, s.classes, dtype, output, [&](const auto* row, std::int64_t n) {
    for (std::int64_t c = 0; c < s.classes; ++c) {
      const bool predicted = static_cast<float>(row[c]) >= s.cut, present = targets[n * s.classes + c] >= 0.5f;
      if (predicted || present) count_one(sums + (predicted && present ? 0 : predicted ? 1 : 2) * s.classes + c);
    }
  });
}

void score_histograms(const Exec& exec, const ScoreShape& s, DType dtype, const void* output, const ScoreTruth& truth,
                      const MetricTarget& to) {
  double* const sums = sums_of(to);
  for_rows(exec, s.rows, s.classes, dtype, output, [&](const auto* row, std::int64_t n) {
    if (truth.labels == nullptr)
      count_sigmoid(s, row, truth.targets + n * s.classes, sums);
    else if (is_counted(truth.labels[n], s.classes, s.ignored))
      count_softmax(s, row, truth.labels[n], sums);
  });
}

void error_sums(const Exec& exec, const ErrorShape& s, DType dtype, const void* output, const float* targets,
                const MetricTarget& to, Workspace workspace) {
  const std::int64_t parts = error_parts(s), width = kErrorSums * s.columns;
  auto* const partial = static_cast<double*>(workspace.data);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(parts, 1, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part)
        add_errors(s, part * s.rows / parts, (part + 1) * s.rows / parts, static_cast<const T*>(output), targets,
                   partial + part * width);
    });
  });
  double* const sums = sums_of(to);
  for (std::int64_t i = 0; i < width; ++i) {
    double sum = 0;
    for (std::int64_t part = 0; part < parts; ++part) sum += partial[part * width + i];
    sums[i] += sum;
  }
  sums[width] += static_cast<double>(s.rows);
}

}  // namespace bantam::kernels::cpu
