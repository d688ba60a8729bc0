// Rows of outputs and targets on the host, and their largest values.
#include "bantam/run/evaluate/target_confusion.h"

#include <algorithm>
#include <span>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::run {
namespace {

std::vector<float> on_host(const Context& context, const Tensor& tensor) {
  const Tensor numbers = tensor.dtype() == DType::float32 ? tensor : ops::cast(context, tensor, DType::float32);
  std::vector<float> values(static_cast<std::size_t>(numbers.elements()));
  copy_bytes(values.data(), numbers.data(), numbers.bytes(), context.stream);
  synchronize(context.stream);
  return values;
}

std::size_t largest(std::span<const float> row) {
  return static_cast<std::size_t>(std::ranges::max_element(row) - row.begin());
}

class TargetConfusion : public Metric {
 public:
  explicit TargetConfusion(std::int64_t classes) : classes_(classes) {}

  std::string_view kind() const override { return "confusion_matrix"; }
  std::vector<TensorFacts> targets(const Shape& output) const override {
    if (output.rank() != 1) throw ShapeError("confusion_matrix of targets: a model ends with one value a class");
    return {{.name = std::string(kTargets), .shape = output, .dtype = DType::float32}};
  }
  MetricPtr for_output(const Shape& output) const override {
    return std::make_shared<const TargetConfusion>(output[0]);
  }
  bool in_training() const override { return false; }
  bool supports_meta() const override { return true; }
  std::int64_t sums() const override { return classes_ * classes_; }
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    if (context.device.meta) return;
    const std::vector<float> outputs = on_host(context, output), targets = on_host(context, batch.at(kTargets));
    const auto classes = static_cast<std::size_t>(classes_);
    std::vector<double> counts(classes * classes);
    for (std::size_t row = 0; row < outputs.size(); row += classes)
      ++counts[largest(std::span(targets).subspan(row, classes)) * classes +
               largest(std::span(outputs).subspan(row, classes))];
    add_to_sums(context, to, counts);
  }
  double value(std::span<const double> sums) const override {
    double right = 0, all = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      all += sums[i];
      if (i % static_cast<std::size_t>(classes_ + 1) == 0) right += sums[i];
    }
    return all > 0 ? right / all : 0;
  }
  MetricTable table(std::span<const double> sums) const override {
    return {.values = {sums.begin(), sums.end()}, .columns = classes_};
  }

 private:
  std::int64_t classes_;
};

}  // namespace

MetricPtr target_confusion() { return std::make_shared<const TargetConfusion>(1); }

}  // namespace bantam::run
