// Work of the counts and sums of metrics, and of the outputs of views.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/metric/metric_counts.h"
#include "bantam/kernels/metric/view_outputs.h"

namespace bantam::kernels::work {
namespace {

/// Sums are read and written once, at most.
std::int64_t sum_bytes(const MetricTarget& to) { return 2 * to.count * static_cast<std::int64_t>(sizeof(double)); }

}  // namespace

void label_counts(const Exec& exec, const LabelCountShape& s, DType dtype, const void*, const std::int32_t*,
                  const MetricTarget& to) {
  note(exec, "label_counts", {.bytes = bytes_of(s.rows * s.classes, dtype) + 4 * s.rows + sum_bytes(to)});
}

void target_counts(const Exec& exec, const TargetCountShape& s, DType dtype, const void*, const float*,
                   const MetricTarget& to) {
  note(exec, "target_counts", {.bytes = bytes_of(s.rows * s.classes, dtype) + 4 * s.rows * s.classes + sum_bytes(to)});
}

void score_histograms(const Exec& exec, const ScoreShape& s, DType dtype, const void*, const ScoreTruth& truth,
                      const MetricTarget& to) {
  const std::int64_t passes = truth.labels != nullptr ? 2 : 1;  // a softmax is known after its row
  note(exec, "score_histograms",
       {.bytes = passes * bytes_of(s.rows * s.classes, dtype) + unless_null(truth.labels, 4 * s.rows) +
                 unless_null(truth.targets, 4 * s.rows * s.classes) + sum_bytes(to)});
}

void error_sums(const Exec& exec, const ErrorShape& s, DType dtype, const void*, const float*, const MetricTarget& to,
                Workspace) {
  const std::int64_t elements = s.rows * s.columns;
  note(exec, "error_sums", {.bytes = bytes_of(elements, dtype) + 4 * elements + sum_bytes(to), .passes = 2});
}

void view_outputs(const Exec& exec, const ViewOutputShape& s, DType dtype, const void*, const std::int32_t* places,
                  float*) {
  const std::int64_t elements = s.rows * s.columns;
  note(exec, "view_outputs",
       {.bytes = bytes_of(elements, dtype) + (s.adds ? 8 : 4) * elements + unless_null(places, 4 * s.rows)});
}

/// Keys are written, and read for each of four digits, for the count and for the choice.
void least_certain(const Exec& exec, const LeastCertainShape& s, const float*, std::int32_t*, Workspace) {
  note(exec, "least_certain", {.bytes = 4 * s.rows * s.classes + 7 * 4 * s.rows + 4 * s.count, .passes = 2});
}

}  // namespace bantam::kernels::work
