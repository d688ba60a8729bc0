// Metrics of predicted values: mean squared error, mean absolute error, coefficient of determination.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/metrics/metric_readers.h"
#include "bantam/kernels/metric/metric_counts.h"

namespace bantam {
namespace {

constexpr double kRounding = 1e-14;  // of the sums: targets that spread by less are all the same

/// The kernel's sums of `columns` columns; the last one is the rows.
struct ColumnSums {
  std::span<const double> sums;
  std::size_t columns;
  double squared_error(std::size_t c) const { return sums[c]; }
  double absolute_error(std::size_t c) const { return sums[columns + c]; }
  double target(std::size_t c) const { return sums[2 * columns + c]; }
  double squared_target(std::size_t c) const { return sums[3 * columns + c]; }
  double rows() const { return sums.back(); }
};

double mse_of(const ColumnSums& of) { return of.squared_error(0) / of.rows(); }
double mae_of(const ColumnSums& of) { return of.absolute_error(0) / of.rows(); }

double r2_of(const ColumnSums& of) {
  double sum = 0;
  for (std::size_t c = 0; c < of.columns; ++c) {
    const double error = of.squared_error(c), square = of.squared_target(c);
    const double spread = square - of.target(c) * of.target(c) / of.rows();
    const bool differ = spread > kRounding * square;
    sum += differ ? 1 - error / spread : (error > 0 ? 0 : 1);
  }
  return sum / static_cast<double>(of.columns);
}

struct ValueRule {
  std::string_view kind;
  double (*value)(const ColumnSums&);
  bool error = false;      ///< the smaller the better
  bool by_column = false;  ///< sums of each value of the output apart; else all values are one column
};

class ValueMetric : public Metric {
 public:
  ValueMetric(const ValueRule& rule, const ValueMetricOptions& options) : rule_(rule), options_(options) {}
  std::string_view kind() const override { return rule_.kind; }
  bool supports_meta() const override { return true; }
  bool in_training() const override { return options_.training; }
  bool smaller_is_better() const override { return rule_.error; }
  std::vector<TensorFacts> targets(const Shape& output) const override {
    if (rule_.by_column && output.rank() != 1)
      throw ShapeError(fmt::format("{}: expected an output of (values), got {}", rule_.kind, to_string(output)));
    return {{.name = std::string(kTargets), .shape = output, .dtype = DType::float32}};
  }
  MetricPtr for_output(const Shape& output) const override {
    (void)targets(output);
    auto copy = std::make_shared<ValueMetric>(*this);
    copy->columns_ = rule_.by_column ? output[0] : 1;
    return copy;
  }
  std::int64_t sums() const override { return kernels::kErrorSums * columns() + 1; }
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    const kernels::ErrorShape shape{.rows = output.elements() / columns(), .columns = columns()};
    const auto bytes = static_cast<std::int64_t>(kernels::error_sums_workspace(shape));
    const Tensor workspace = context.allocate({bytes}, DType::uint8, Category::workspace);
    BANTAM_KERNEL(context.exec, error_sums, shape, output.dtype(), output.data(), batch.at(kTargets).as<float>(),
                  kernels::MetricTarget{to.ring, to.slot, sums()},
                  kernels::Workspace{workspace.data(), workspace.bytes()});
  }
  double value(std::span<const double> sums) const override {
    return rule_.value({sums, static_cast<std::size_t>(columns())});
  }

 private:
  std::int64_t columns() const {
    if (columns_ == 0) throw Error(fmt::format("{}: the model's output is not known yet (metrics_for)", rule_.kind));
    return columns_;
  }

  ValueRule rule_;
  ValueMetricOptions options_;
  std::int64_t columns_ = 0;
};

MetricPtr make(const ValueRule& rule, const ValueMetricOptions& options) {
  return std::make_shared<const ValueMetric>(rule, options);
}

ValueMetricOptions read_options(ConfigMap& options) {
  return {.training = options.boolean(
              {"training", "Count it in training, too; false: evaluations alone count it.", "false"}, true)};
}

}  // namespace

MetricPtr mse(const ValueMetricOptions& options) {
  return make({.kind = "mse", .value = mse_of, .error = true}, options);
}
MetricPtr mae(const ValueMetricOptions& options) {
  return make({.kind = "mae", .value = mae_of, .error = true}, options);
}
MetricPtr r2(const ValueMetricOptions& options) {
  return make({.kind = "r2", .value = r2_of, .by_column = true}, options);
}

MetricPtr read_mse(ConfigMap& options) {
  options.describe("Mean squared difference of outputs and targets, over all values.", "mse");
  return mse(read_options(options));
}
MetricPtr read_mae(ConfigMap& options) {
  options.describe("Mean absolute difference of outputs and targets, over all values.", "mae");
  return mae(read_options(options));
}
MetricPtr read_r2(ConfigMap& options) {
  options.describe(
      "Coefficient of determination: 1 less the squared error over the targets' spread, the mean over the values of an "
      "output.",
      "r2");
  return r2(read_options(options));
}

}  // namespace bantam
