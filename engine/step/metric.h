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

#include "bantam/base/config/registry.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/layers/loss.h"

namespace bantam {

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
  /// Float64 sums that it counts, at least 1.
  virtual std::int64_t sums() const = 0;
  /// Adds the micro-batch's sums to `to` (DeviceSums). output (batch, …) of the type that the model computes in; no
  /// gradient is recorded. Does not write to output or batch.
  virtual void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                          const DeviceSums& to) const = 0;
  /// From `sums()` sums, of at least one sample.
  virtual double value(std::span<const double> sums) const = 0;
  /// As Loss::supports_meta, of `accumulate`.
  virtual bool supports_meta() const { return false; }
  /// Whether the loss counts it already (LossSums). Then `accumulate` is never
  /// called, and the model's end may be fused with the loss.
  virtual bool counted_by_loss() const { return false; }
};

using MetricPtr = std::shared_ptr<const Metric>;

/// The share of samples whose largest output is the label; counted by the loss.
MetricPtr accuracy();

/// Built-in: accuracy. Register before the first configuration is read.
Registry<Reader<MetricPtr>>& metrics();

/// `metrics: [NAME, {NAME: {options}}, …]`; [accuracy] where the key is missing. Throws ConfigError.
std::vector<MetricPtr> read_metrics(ConfigMap& section);

/// What one metric came to.
struct MetricValue {
  MetricPtr metric;
  std::vector<double> sums;
  std::string_view name() const { return metric->kind(); }
  double value() const { return metric->value(sums); }
};

/// What a set of samples came to.
struct Metrics {
  double loss = 0;      ///< mean per sample
  double accuracy = 0;  ///< share of samples; 0 where the loss counts none as correct
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
/// The way back; `metrics` are those of the configuration, of which the loss may count some. Throws DataError naming
/// `what` where the numbers are not those of such metrics.
Metrics metrics_from(const std::vector<double>& numbers, const std::vector<MetricPtr>& metrics, std::string_view what);

}  // namespace bantam
