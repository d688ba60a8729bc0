// Metrics of predicted classes: top-k, confusion, precision, recall, F1, mean IoU and the binned area under ROC curves.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/metrics/metric_readers.h"
#include "bantam/kernels/loss/class_loss.h"
#include "bantam/kernels/metric/metric_counts.h"

namespace bantam {
namespace {

constexpr std::int32_t kScoreBins = 200;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Base of the metrics over classes: keeps their options and, in a copy for a known model, the number of classes.
class ClassMetric : public Metric {
 public:
  ClassMetric(std::string_view kind, const ClassMetricOptions& options) : kind_(kind), options_(options) {
    if (!(options_.threshold > 0 && options_.threshold < 1))
      throw ConfigError(fmt::format("{}: threshold must be in (0, 1), got {}", kind_, options_.threshold));
  }

  std::string_view kind() const override { return kind_; }
  bool supports_meta() const override { return true; }
  bool in_training() const override { return options_.training; }

  std::vector<TensorFacts> targets(const Shape& output) const override {
    if (output.rank() < 1)
      throw ShapeError(
          fmt::format("{}: a model ends with one value a class; this ends with {}", kind_, to_string(output)));
    if (options_.multi_label) return {{.name = std::string(kTargets), .shape = output, .dtype = DType::float32}};
    const std::int64_t classes = output[output.rank() - 1];
    return {{.name = std::string(kLabels), .shape = places_of(output), .dtype = DType::int32, .classes = classes}};
  }

 protected:
  /// The axes before the classes.
  static Shape places_of(const Shape& output) {
    Shape places;
    for (int axis = output.rank() - 2; axis >= 0; --axis) places = places.prepend(output[axis]);
    return places;
  }

  std::int64_t classes() const {
    if (classes_ == 0) throw Error(fmt::format("{}: the model's output is not known yet (metrics_for)", kind_));
    return classes_;
  }
  std::int64_t rows_of(const Tensor& output) const { return output.elements() / classes(); }
  kernels::MetricTarget target_of(const DeviceSums& to) const { return {to.ring, to.slot, sums()}; }
  const ClassMetricOptions& options() const { return options_; }

  /// A copy that knows its classes.
  template <class Kind>
  static MetricPtr with_classes(const Kind& metric, const Shape& output) {
    (void)metric.targets(output);
    auto copy = std::make_shared<Kind>(metric);
    copy->classes_ = output[output.rank() - 1];
    return copy;
  }

 private:
  std::string kind_;
  ClassMetricOptions options_;
  std::int64_t classes_ = 0;
};

void count_labels(const Context& context, kernels::LabelCountShape shape, const Tensor& output, const TensorMap& batch,
                  const kernels::MetricTarget& to) {
  BANTAM_KERNEL(context.exec, label_counts, shape, output.dtype(), output.data(), batch.at(kLabels).as<std::int32_t>(),
                to);
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

class TopK : public ClassMetric {
 public:
  TopK(std::int64_t k, const ClassMetricOptions& options) : ClassMetric("top_k", options), k_(k) {
    if (k < 1) throw ConfigError(fmt::format("top_k: k must be at least 1, got {}", k));
    if (options.multi_label) throw ConfigError("top_k: counts labels, not targets of several classes (multi_label)");
  }
  MetricPtr for_output(const Shape& output) const override { return with_classes(*this, output); }
  std::int64_t sums() const override { return 2; }
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    count_labels(context,
                 {.rows = rows_of(output),
                  .classes = classes(),
                  .kind = kernels::LabelCount::top_k,
                  .k = k_,
                  .ignored = options().ignore_label},
                 output, batch, target_of(to));
  }
  double value(std::span<const double> sums) const override { return ratio(sums[0], sums[1]); }
  std::int64_t k() const { return k_; }

 private:
  std::int64_t k_;
};

class ConfusionMatrix : public ClassMetric {
 public:
  explicit ConfusionMatrix(const ClassMetricOptions& options) : ClassMetric("confusion_matrix", options) {
    if (options.multi_label)
      throw ConfigError("confusion_matrix: counts labels, not targets of several classes (multi_label)");
  }
  MetricPtr for_output(const Shape& output) const override { return with_classes(*this, output); }
  std::int64_t sums() const override { return classes() * classes(); }
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    count_labels(context,
                 {.rows = rows_of(output),
                  .classes = classes(),
                  .kind = kernels::LabelCount::confusion,
                  .ignored = options().ignore_label},
                 output, batch, target_of(to));
  }
  double value(std::span<const double> sums) const override {
    double diagonal = 0, all = 0;
    for (std::int64_t i = 0; i < classes() * classes(); ++i) {
      all += sums[static_cast<std::size_t>(i)];
      if (i % (classes() + 1) == 0) diagonal += sums[static_cast<std::size_t>(i)];
    }
    return ratio(diagonal, all);
  }
  MetricTable table(std::span<const double> sums) const override {
    return {.values = {sums.begin(), sums.end()}, .columns = classes()};
  }
};

/// Counted by the kernel of the softmax losses, whose largest logit and largest target are the answer and the truth.
class ClassAccuracy : public ClassMetric {
 public:
  ClassAccuracy() : ClassMetric("accuracy", {.multi_label = true}) {}
  MetricPtr for_output(const Shape& output) const override { return with_classes(*this, output); }
  bool is_accuracy() const override { return true; }
  std::int64_t sums() const override { return sizeof(kernels::MetricSums) / sizeof(double); }
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    const std::int64_t samples = output.shape()[0];
    const kernels::ClassLossShape shape{
        .batch = samples, .positions = rows_of(output) / std::max<std::int64_t>(samples, 1), .classes = classes()};
    const Tensor loss = context.allocate({}, DType::float32);
    const Scratch scratch = context.scratch(kernels::class_loss_workspace_bytes(shape));
    BANTAM_KERNEL(context.exec, class_loss, shape, output.dtype(),
                  {.logits = output.data(), .targets = batch.at(kTargets).as<float>()},
                  {.loss = loss.as<float>(), .ring = reinterpret_cast<kernels::MetricSums*>(to.ring), .slot = to.slot},
                  scratch.get());
  }
  double value(std::span<const double> sums) const override { return ratio(sums[1], sums[2]); }
};

/// A class's predictions: true positives, false positives, false negatives.
struct ClassCounts {
  double tp = 0, fp = 0, fn = 0;
};
using OfClass = double (*)(const ClassCounts&);

double precision_of(const ClassCounts& c) { return ratio(c.tp, c.tp + c.fp); }
double recall_of(const ClassCounts& c) { return ratio(c.tp, c.tp + c.fn); }
double f1_of(const ClassCounts& c) { return ratio(2 * c.tp, 2 * c.tp + c.fp + c.fn); }
double iou_of(const ClassCounts& c) { return ratio(c.tp, c.tp + c.fp + c.fn); }

/// The mean over classes that occur; without any, 0.
double mean_of_numbers(const std::vector<double>& values) {
  double sum = 0, count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return ratio(sum, count);
}

/// A function of each class's counts, and its mean.
class ClassMean : public ClassMetric {
 public:
  ClassMean(std::string_view kind, OfClass of_class, const ClassMetricOptions& options)
      : ClassMetric(kind, options), of_class_(of_class) {}
  MetricPtr for_output(const Shape& output) const override { return with_classes(*this, output); }
  std::int64_t sums() const override { return 3 * classes(); }
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    if (!options().multi_label)
      return count_labels(context, {.rows = rows_of(output), .classes = classes(), .ignored = options().ignore_label},
                          output, batch, target_of(to));
    const double threshold = options().threshold;
    const kernels::TargetCountShape shape{.rows = rows_of(output),
                                          .classes = classes(),
                                          .cut = static_cast<float>(std::log(threshold / (1 - threshold)))};
    BANTAM_KERNEL(context.exec, target_counts, shape, output.dtype(), output.data(), batch.at(kTargets).as<float>(),
                  target_of(to));
  }
  double value(std::span<const double> sums) const override { return mean_of_numbers(values_of(sums)); }
  MetricTable table(std::span<const double> sums) const override { return {.values = values_of(sums)}; }

 private:
  std::vector<double> values_of(std::span<const double> sums) const {
    std::vector<double> values;
    const auto of = static_cast<std::size_t>(classes());
    for (std::size_t c = 0; c < of; ++c) {
      const ClassCounts counts{sums[c], sums[of + c], sums[2 * of + c]};
      values.push_back(counts.tp + counts.fp + counts.fn > 0 ? of_class_(counts) : kNaN);
    }
    return values;
  }

  OfClass of_class_;
};

class Auc : public ClassMetric {
 public:
  explicit Auc(const ClassMetricOptions& options) : ClassMetric("auc", options) {}
  MetricPtr for_output(const Shape& output) const override { return with_classes(*this, output); }
  std::int64_t sums() const override { return classes() * 2 * kScoreBins; }
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    const bool several = options().multi_label;
    const kernels::ScoreShape shape{
        .rows = rows_of(output), .classes = classes(), .bins = kScoreBins, .ignored = options().ignore_label};
    const kernels::ScoreTruth truth{.labels = several ? nullptr : batch.at(kLabels).as<std::int32_t>(),
                                    .targets = several ? batch.at(kTargets).as<float>() : nullptr};
    BANTAM_KERNEL(context.exec, score_histograms, shape, output.dtype(), output.data(), truth, target_of(to));
  }
  double value(std::span<const double> sums) const override { return mean_of_numbers(values_of(sums)); }
  MetricTable table(std::span<const double> sums) const override { return {.values = values_of(sums)}; }

 private:
  /// Pairs of a negative and a positive: those whose positive lies in a higher bin, and half of those in one bin.
  static double area(std::span<const double> negatives, std::span<const double> positives) {
    double below = 0, pairs = 0, all_positives = 0;
    for (std::size_t bin = 0; bin < negatives.size(); ++bin) {
      pairs += positives[bin] * (below + negatives[bin] / 2);
      below += negatives[bin];
      all_positives += positives[bin];
    }
    return below > 0 && all_positives > 0 ? pairs / (below * all_positives) : kNaN;
  }
  std::vector<double> values_of(std::span<const double> sums) const {
    std::vector<double> values;
    for (std::size_t c = 0; c < static_cast<std::size_t>(classes()); ++c)
      values.push_back(
          area(sums.subspan(2 * c * kScoreBins, kScoreBins), sums.subspan((2 * c + 1) * kScoreBins, kScoreBins)));
    return values;
  }
};

bool read_training(ConfigMap& options, bool otherwise) {
  return options.boolean({"training",
                          "Count it in training, too. Each update whose metrics are not read yet has sums of its own, "
                          "and the model's end is then not fused with the loss. false: evaluations alone count it.",
                          "false"},
                         otherwise);
}

std::int32_t read_ignored(ConfigMap& options) {
  return static_cast<std::int32_t>(options.integer(
      {"ignore_label", "Samples (pixels) of this label do not count. A label that is no class never does.", "255"},
      {.min = std::numeric_limits<std::int32_t>::min(), .max = std::numeric_limits<std::int32_t>::max()}, -1));
}

ClassMetricOptions read_labels(ConfigMap& options, bool training) {
  return {.ignore_label = read_ignored(options), .training = read_training(options, training)};
}

/// Also of multi-label data; `thresholds`: a class is predicted from a probability on.
ClassMetricOptions read_classes(ConfigMap& options, bool thresholds, bool training) {
  ClassMetricOptions read = read_labels(options, training);
  read.multi_label =
      options.boolean({"multi_label",
                       "false: labels, one class a sample. true: targets, any number of classes a sample, whose "
                       "probabilities are the sigmoids of the outputs.",
                       "true"},
                      false);
  if (thresholds)
    read.threshold =
        options.number({"threshold", "With multi_label: a class is predicted from this probability on.", "0.3"},
                       {.min = 0, .max = 1, .min_open = true, .max_open = true}, 0.5);
  return read;
}

}  // namespace

std::int64_t k_of(const Metric& metric) {
  const auto* counts = dynamic_cast<const TopK*>(&metric);
  return counts == nullptr ? 0 : counts->k();
}
MetricPtr top_k(std::int64_t k, const ClassMetricOptions& options) { return std::make_shared<const TopK>(k, options); }
MetricPtr confusion_matrix(const ClassMetricOptions& options) {
  return std::make_shared<const ConfusionMatrix>(options);
}
MetricPtr precision(const ClassMetricOptions& options) {
  return std::make_shared<const ClassMean>("precision", precision_of, options);
}
MetricPtr recall(const ClassMetricOptions& options) {
  return std::make_shared<const ClassMean>("recall", recall_of, options);
}
MetricPtr f1(const ClassMetricOptions& options) { return std::make_shared<const ClassMean>("f1", f1_of, options); }
MetricPtr mean_iou(const ClassMetricOptions& options) {
  return std::make_shared<const ClassMean>("mean_iou", iou_of, options);
}
MetricPtr class_accuracy() { return std::make_shared<const ClassAccuracy>(); }
MetricPtr auc(const ClassMetricOptions& options) { return std::make_shared<const Auc>(options); }

MetricPtr read_top_k(ConfigMap& options) {
  options.describe("Share of samples whose label is among the k largest outputs.", "top_k: {k: 3}");
  const std::int64_t k =
      options.integer({"k", "How many of the largest outputs may be the label.", "3"}, {.min = 1, .max = 1 << 30}, 5);
  return top_k(k, read_labels(options, true));
}
MetricPtr read_confusion_matrix(ConfigMap& options) {
  options.describe(
      "Samples by label (rows) and prediction (columns). Where one value is asked for, that is the share on the "
      "diagonal. In training it would need classes² sums an update.",
      "confusion_matrix");
  return confusion_matrix(read_labels(options, false));
}
MetricPtr read_precision(ConfigMap& options) {
  options.describe(
      "Of the samples predicted as a class the share that are of it: the mean over classes that occur, and each.",
      "precision: {multi_label: true, threshold: 0.3}");
  return precision(read_classes(options, true, true));
}
MetricPtr read_recall(ConfigMap& options) {
  options.describe(
      "Of a class's samples the share that are predicted as it: the mean over classes that occur, and each.", "recall");
  return recall(read_classes(options, true, true));
}
MetricPtr read_f1(ConfigMap& options) {
  options.describe("Harmonic mean of precision and recall: the mean over classes that occur, and each.", "f1");
  return f1(read_classes(options, true, true));
}
MetricPtr read_mean_iou(ConfigMap& options) {
  options.describe(
      "Samples (pixels) predicted as a class and of it, over those that are one or the other: the mean over classes "
      "that occur, and each.",
      "mean_iou: {ignore_label: 255}");
  return mean_iou(read_classes(options, true, true));
}
MetricPtr read_auc(ConfigMap& options) {
  options.describe(
      "Area under the ROC curve of each class against the rest, and its mean over classes that have both, from scores "
      "in 200 bins: two scores in one bin count as equal.",
      "auc: {multi_label: true}");
  return auc(read_classes(options, false, false));
}

}  // namespace bantam
