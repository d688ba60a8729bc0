// Internal: the readers of the built-in metrics' options, and one option that others ask for.
#pragma once

#include "bantam/engine/metrics/metric.h"

namespace bantam {

MetricPtr read_top_k(ConfigMap& options);
MetricPtr read_confusion_matrix(ConfigMap& options);
MetricPtr read_precision(ConfigMap& options);
MetricPtr read_recall(ConfigMap& options);
MetricPtr read_f1(ConfigMap& options);
MetricPtr read_mean_iou(ConfigMap& options);
MetricPtr read_auc(ConfigMap& options);
MetricPtr read_mse(ConfigMap& options);
MetricPtr read_mae(ConfigMap& options);
MetricPtr read_r2(ConfigMap& options);

/// The k of a top_k; 0 of any other metric.
std::int64_t k_of(const Metric& metric);

}  // namespace bantam
