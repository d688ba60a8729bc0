// Accuracy, the table of metrics, and adding up what sets of samples came to.
#include "bantam/engine/metrics/metric.h"

#include <algorithm>
#include <iterator>
#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/metrics/metric_readers.h"

namespace bantam {
namespace {

class Accuracy : public Metric {
 public:
  std::string_view kind() const override { return "accuracy"; }
  std::int64_t sums() const override { return 3; }
  void accumulate(const Context&, const Tensor&, const TensorMap&, const DeviceSums&) const override {
    throw Error("accuracy: the loss counts it");
  }
  double value(std::span<const double> sums) const override { return sums[1] / sums[2]; }
  bool supports_meta() const override { return true; }
  bool counted_by_loss() const override { return true; }
};

MetricPtr read_accuracy(ConfigMap& options) {
  options.describe(
      "Of losses of a softmax, and wherever a sample has one class (train.one_class): share of samples whose largest "
      "output is that of the label. Of losses of sigmoids with any number of classes a sample: share of right binary "
      "decisions, which logs call binary_accuracy.",
      "accuracy");
  return accuracy();
}

}  // namespace

MetricPtr accuracy() { return std::make_shared<const Accuracy>(); }

Registry<Reader<MetricPtr>>& metrics() {
  static Registry<Reader<MetricPtr>> table("metric", {{"accuracy", read_accuracy},
                                                      {"top_k", read_top_k},
                                                      {"confusion_matrix", read_confusion_matrix},
                                                      {"precision", read_precision},
                                                      {"recall", read_recall},
                                                      {"f1", read_f1},
                                                      {"mean_iou", read_mean_iou},
                                                      {"auc", read_auc},
                                                      {"mse", read_mse},
                                                      {"mae", read_mae},
                                                      {"r2", read_r2}});
  return table;
}

std::vector<MetricPtr> read_metrics(ConfigMap& section) {
  const std::vector<ConfigNode> items = section.list(
      {"metrics", "What is counted beside the loss, in training and on held-out samples. [] counts nothing else.",
       "[accuracy, top_k: {k: 3}, f1, confusion_matrix]"},
      {"accuracy"});
  std::vector<MetricPtr> read;
  for (const ConfigNode& item : items) {
    MetricPtr metric = read_registered(metrics(), item);
    if (std::ranges::any_of(read, [&](const MetricPtr& other) { return other->kind() == metric->kind(); }))
      item.fail(fmt::format("the metric '{}' is named twice", metric->kind()));
    read.push_back(std::move(metric));
  }
  return read;
}

std::vector<MetricPtr> metrics_with_values(const std::vector<MetricPtr>& metrics) {
  std::vector<MetricPtr> with_values;
  std::ranges::copy_if(metrics, std::back_inserter(with_values),
                       [](const MetricPtr& metric) { return !metric->counted_by_loss() && !metric->is_accuracy(); });
  return with_values;
}

std::vector<MetricPtr> metrics_of_updates(const std::vector<MetricPtr>& metrics) {
  std::vector<MetricPtr> counted;
  std::ranges::copy_if(metrics, std::back_inserter(counted),
                       [](const MetricPtr& metric) { return !metric->counted_by_loss() && metric->in_training(); });
  return counted;
}

std::vector<MetricPtr> metrics_for(const Shape& output, std::vector<MetricPtr> metrics) {
  for (MetricPtr& metric : metrics)
    if (MetricPtr bound = metric->for_output(output)) metric = std::move(bound);
  return metrics;
}

void merge(Metrics& sum, const Metrics& part) {
  const double samples = static_cast<double>(sum.samples + part.samples);
  if (samples == 0) return;
  const double a = static_cast<double>(sum.samples) / samples, b = static_cast<double>(part.samples) / samples;
  sum.loss = sum.loss * a + part.loss * b;
  sum.accuracy = sum.accuracy * a + part.accuracy * b;
  sum.samples += part.samples;
  merge(sum.values, part.values);
}

void merge(std::vector<MetricValue>& sum, const std::vector<MetricValue>& part) {
  if (sum.empty()) {
    sum = part;
    return;
  }
  for (std::size_t m = 0; m < part.size(); ++m)
    for (std::size_t i = 0; i < part[m].sums.size(); ++i) sum[m].sums[i] += part[m].sums[i];
}

double value_of(const Metrics& metrics, std::string_view name) {
  if (name == "loss") return metrics.loss;
  for (const MetricValue& value : metrics.values)
    if (value.name() == name) return value.value();
  return metrics.accuracy;
}

std::vector<double> numbers_of(const Metrics& metrics) {
  std::vector<double> numbers = {static_cast<double>(metrics.samples), metrics.loss, metrics.accuracy};
  for (const MetricValue& value : metrics.values) numbers.insert(numbers.end(), value.sums.begin(), value.sums.end());
  return numbers;
}

Metrics metrics_from(const std::vector<double>& numbers, const std::vector<MetricPtr>& metrics, std::string_view what) {
  const auto check = [&](bool sound) {
    if (!sound)
      throw DataError(fmt::format("{} holds {} numbers, which are none of this run's metrics", what, numbers.size()));
  };
  constexpr double kMostSamples = 9e15;  // exact in float64
  check(numbers.size() >= 3 && numbers[0] >= 0 && numbers[0] <= kMostSamples);
  Metrics read{.loss = numbers[1], .accuracy = numbers[2], .samples = static_cast<std::int64_t>(numbers[0])};
  auto next = numbers.begin() + 3;
  for (const MetricPtr& metric :
       read.samples == 0 ? std::vector<MetricPtr>() : metrics_with_values(metrics_of_updates(metrics))) {
    check(numbers.end() - next >= metric->sums());
    read.values.push_back({metric, std::vector<double>(next, next + metric->sums())});
    next += metric->sums();
  }
  check(next == numbers.end());
  return read;
}

}  // namespace bantam
