// Metric: what is counted of a model's outputs beside the loss; and Metrics, what a set of samples came to.
//
// A program's own metric derives from Metric, and is registered under a name (metrics()) where a configuration shall
// name it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/config/registry.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/losses/loss.h"

BANTAM_API_BEGIN
namespace bantam {

class Metric;
using MetricPtr = std::shared_ptr<const Metric>;

/// The numbers that a metric has beside its value: one a class, or rows of them (a confusion matrix has labels down and
/// predictions across).
struct MetricTable {
  std::vector<double> values = {};
  std::int64_t columns = 0;  ///< of a row; 0: the values are no rows
  bool is_matrix() const { return columns > 0; }
};

/// Sums over samples, and a value of them. Sums of batches are added, and the value is made of the total: a root of a
/// mean is right over an epoch, too. Immutable, and used by several steps and threads at once.
class Metric {
 public:
  virtual ~Metric() = default;
  /// Its name in a configuration, in events and in logs: "accuracy".
  virtual std::string_view kind() const = 0;
  /// The tensors that `accumulate` reads from a batch, for a model whose output is `output` (without the batch axis).
  /// Throws ShapeError saying what was expected where the metric does not accept such an output.
  virtual std::vector<TensorFacts> targets(const Shape& output) const {
    (void)output;
    return {};
  }
  /// The metric as it is for such an output, where its sums depend on that; null: it is the same for all. Metrics are
  /// exchanged for it where a model is known (metrics_for).
  virtual MetricPtr for_output(const Shape& output) const {
    (void)output;
    return nullptr;
  }
  /// Whether it is counted in training, too, where each update not yet read has sums of its own (512 at most). Else
  /// evaluations alone count it.
  virtual bool in_training() const { return true; }
  /// Float64 sums that it counts, at least 1.
  virtual std::int64_t sums() const = 0;
  /// Adds the micro-batch's sums to `to` (DeviceSums). output (batch, …) of the type that the model computes in; no
  /// gradient is recorded. Does not write to output or batch.
  virtual void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                          const DeviceSums& to) const = 0;
  /// From `sums()` sums, of at least one sample.
  virtual double value(std::span<const double> sums) const = 0;
  /// From the same sums, where there is more to tell than a value.
  virtual MetricTable table(std::span<const double> sums) const {
    (void)sums;
    return {};
  }
  /// Whether a smaller value is the better one, as of errors.
  virtual bool smaller_is_better() const { return false; }
  /// As Loss::supports_meta, of `accumulate`.
  virtual bool supports_meta() const { return false; }
  /// Whether the loss counts it already (LossSums). Then `accumulate` is never
  /// called, and the model's end may be fused with the loss.
  virtual bool counted_by_loss() const { return false; }
  /// Whether its value stands in place of what the loss counts as correct (Metrics::accuracy); it is then none of
  /// Metrics::values. Its sums are a loss's (LossSums).
  virtual bool is_accuracy() const { return false; }
};

/// The share of samples that the loss counts as correct: with a softmax, those whose largest output is the label or the
/// largest target; with sigmoids, the share of right binary decisions. Other losses count none.
MetricPtr accuracy();
/// For a loss of float32 "targets", where a sample has one class: the share of samples whose largest output is the
/// largest target, whatever the loss. It replaces what the loss counts (Metric::is_accuracy). Of outputs
/// (…, classes); of several places a sample counts by the share that is right.
MetricPtr class_accuracy();

// The others read the model's output, whose last axis is the classes: (classes), or (…, classes) with labels of every
// place before it. Sums are added on the device, in training and evaluation alike, and are exact over short batches and
// micro-batches. All support meta devices. Options out of their range throw ConfigError.

/// Options of the metrics over classes: labels or targets to compare with, and the samples that count.
struct ClassMetricOptions {
  /// false: labels (kLabels, int32), one class a sample; the prediction is the largest output. true: "targets"
  /// (float32, of the output's shape), any number of classes a sample.
  bool multi_label = false;
  /// With multi_label: a class is predicted from this probability on, the sigmoid of its output; in (0, 1).
  double threshold = 0.5;
  /// Samples of this label do not count, as those of a label that is no class.
  std::int32_t ignore_label = -1;
  /// Metric::in_training.
  bool training = true;
};

/// Share of samples whose label is among the k largest outputs: scikit-learn's top_k_accuracy_score.
MetricPtr top_k(std::int64_t k = 5, const ClassMetricOptions& options = {});
/// Samples by label (row) and prediction (column): scikit-learn's confusion_matrix. Its value is the share on the
/// diagonal. In training each update would need classes² sums.
MetricPtr confusion_matrix(const ClassMetricOptions& options = {.training = false});
/// TP / (TP + FP), TP / (TP + FN) and their harmonic mean, each the mean over classes that occur as a label or as a
/// prediction: scikit-learn's average="macro" with zero_division=0. The table has one value a class, NaN where the
/// class does not occur. Their sums, and those of mean_iou, are true positives of each class, then false positives,
/// then false negatives.
MetricPtr precision(const ClassMetricOptions& options = {});
MetricPtr recall(const ClassMetricOptions& options = {});
MetricPtr f1(const ClassMetricOptions& options = {});
/// TP / (TP + FP + FN), the mean over classes that occur: Keras' MeanIoU, scikit-learn's jaccard_score (macro).
MetricPtr mean_iou(const ClassMetricOptions& options = {});
/// Area under the ROC curve, the mean over classes with positives and negatives, each against the rest: of softmax
/// probabilities, or with multi_label of sigmoids. Scores are counted in 200 equal bins of [0, 1], of which a pair in
/// one bin counts half, so the area is within half the share of such pairs of scikit-learn's roc_auc_score.
MetricPtr auc(const ClassMetricOptions& options = {.training = false});

/// Options of mse, mae and r2.
struct ValueMetricOptions {
  bool training = true;  ///< Metric::in_training
};

/// Mean squared and mean absolute error over all values of the output, against "targets" (float32, of its shape).
MetricPtr mse(const ValueMetricOptions& options = {});
MetricPtr mae(const ValueMetricOptions& options = {});
/// 1 - Σ (t - y)² / Σ (t - mean t)², the mean over the values of an output (values): scikit-learn's r2_score. A value
/// whose targets are all the same counts 1 where it is met exactly, else 0.
MetricPtr r2(const ValueMetricOptions& options = {});

/// Each metric as it is for such an output (Metric::for_output). Throws ShapeError where one does not accept it.
std::vector<MetricPtr> metrics_for(const Shape& output, std::vector<MetricPtr> metrics);

/// Those that are among Metrics::values: that the loss does not count, and that are not the accuracy.
std::vector<MetricPtr> metrics_with_values(const std::vector<MetricPtr>& metrics);

/// Those whose sums each update has: that the loss does not count, and that are counted in training. In their order.
std::vector<MetricPtr> metrics_of_updates(const std::vector<MetricPtr>& metrics);

/// Built-in: accuracy and those above, by their names. Register before the first configuration is read.
Registry<Reader<MetricPtr>>& metrics();

/// `metrics: [NAME, {NAME: {options}}, …]`; [accuracy] where the key is missing. Throws ConfigError.
std::vector<MetricPtr> read_metrics(ConfigMap& section);

/// A metric with its sums over a set of samples, from which its value and its table follow.
struct MetricValue {
  MetricPtr metric;
  std::vector<double> sums;
  std::string_view name() const { return metric->kind(); }
  double value() const { return metric->value(sums); }
  MetricTable table() const { return metric->table(sums); }
};

/// The results over a set of samples: mean loss, accuracy, and the values of the other metrics.
struct Metrics {
  double loss = 0;      ///< mean per sample
  double accuracy = 0;  ///< see accuracy() and class_accuracy(); 0 where the loss counts none as correct
  std::int64_t samples = 0;
  std::vector<MetricValue> values = {};  ///< of metrics that the loss does not count, in the step's order
};

/// By name: "loss", a metric that the loss does not count, else the accuracy.
double value_of(const Metrics& metrics, std::string_view name);

/// `sum` becomes that of both sets of samples, which one step has counted. An empty list is no samples.
void merge(Metrics& sum, const Metrics& part);
void merge(std::vector<MetricValue>& sum, const std::vector<MetricValue>& part);

/// For a state file: samples, loss, accuracy, and the sums of every value, in their order.
std::vector<double> numbers_of(const Metrics& metrics);
/// The way back, of what was counted in training; `metrics` are the step's (metrics_for), of which the loss may count
/// some. Throws DataError naming
/// `what` where the numbers are not those of such metrics.
Metrics metrics_from(const std::vector<double>& numbers, const std::vector<MetricPtr>& metrics, std::string_view what);

}  // namespace bantam
BANTAM_API_END
