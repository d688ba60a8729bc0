// Counts and sums of a batch that metrics are made of: of predicted classes, multi-label predictions, scores in bins,
// and errors of values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// Where sums are added: element i to ring[*slot·count + i], float64. Counts are whole numbers, so their order does not
/// matter below 2^53.
struct MetricTarget {
  double* ring = nullptr;
  const std::int32_t* slot = nullptr;  ///< device memory, read by the kernel; null: 0
  std::int64_t count = 0;              ///< sums a slot
};

enum class LabelCount : std::uint8_t {
  top_k,      ///< 2 sums: rows whose label is among the k largest outputs, rows counted
  confusion,  ///< classes·classes sums: rows of class `label` predicted as `c`, at label·classes + c
  classes     ///< 3·classes sums: true positives a class, then false positives, then false negatives
};

/// output (rows, classes), labels (rows). A row whose label is none of [0, classes), or is `ignored`, counts nowhere.
/// The prediction is the class with the largest output (the first, among equals; 0 where all are NaN).
struct LabelCountShape {
  std::int64_t rows = 0, classes = 0;
  LabelCount kind = LabelCount::classes;
  std::int64_t k = 1;  ///< of top_k. Among equal outputs the classes before the label come first
  std::int32_t ignored = -1;
};

/// output `dtype`, labels int32.
using LabelCounts = void(const Exec&, const LabelCountShape&, DType dtype, const void* output,
                         const std::int32_t* labels, const MetricTarget& to);

/// output, targets (rows, classes): each class is predicted where its output is at least `cut`, and present where its
/// target is at least 0.5.
struct TargetCountShape {
  std::int64_t rows = 0, classes = 0;
  float cut = 0.0f;
};

/// 3·classes sums: true positives a class, then false positives, then false negatives. output `dtype`, targets float32.
using TargetCounts = void(const Exec&, const TargetCountShape&, DType dtype, const void* output, const float* targets,
                          const MetricTarget& to);

/// Scores in [0, 1] of (rows, classes) in `bins` equal bins: bin ⌊score·bins⌋, the last one for a score of 1, the first
/// one for a NaN.
struct ScoreShape {
  std::int64_t rows = 0, classes = 0;
  std::int32_t bins = 0;
  std::int32_t ignored = -1;  ///< as LabelCountShape's
};

/// Says which rows are positive and how scores are made; one of the two is set.
struct ScoreTruth {
  const std::int32_t* labels = nullptr;  ///< (rows): score = softmax(output), each class against the rest
  const float* targets = nullptr;        ///< (rows, classes): score = sigmoid(output), positive from 0.5 on
};

/// classes·2·bins sums: the negatives of class c by bin at c·2·bins, then its positives. output `dtype`.
using ScoreHistograms = void(const Exec&, const ScoreShape&, DType dtype, const void* output, const ScoreTruth&,
                             const MetricTarget& to);

/// output, targets (rows, columns).
struct ErrorShape {
  std::int64_t rows = 0, columns = 0;
};

inline constexpr std::int64_t kErrorSums = 4;  ///< a column: Σ (y - t)², Σ |y - t|, Σ t, Σ t²

/// Parts that the rows are cut into, by shape alone, whose sums are added in order.
inline std::int64_t error_parts(const ErrorShape& shape) {
  constexpr std::int64_t kRows = 1024, kMost = 128;
  return std::clamp<std::int64_t>((shape.rows + kRows - 1) / kRows, 1, kMost);
}
/// Bytes of workspace: the sums of the parts.
inline std::size_t error_sums_workspace(const ErrorShape& shape) {
  return static_cast<std::size_t>(error_parts(shape) * shape.columns * kErrorSums) * sizeof(double);
}

/// kErrorSums·columns + 1 sums: each of the kErrorSums for all columns, then the rows. output `dtype`, targets float32;
/// arithmetic in float64. Each part's rows are added in an order that is fixed for a backend.
using ErrorSums = void(const Exec&, const ErrorShape&, DType dtype, const void* output, const float* targets,
                       const MetricTarget& to, Workspace);

BANTAM_DECLARE_KERNEL(LabelCounts, label_counts);
BANTAM_DECLARE_KERNEL(TargetCounts, target_counts);
BANTAM_DECLARE_KERNEL(ScoreHistograms, score_histograms);
BANTAM_DECLARE_KERNEL(ErrorSums, error_sums);

}  // namespace bantam::kernels
