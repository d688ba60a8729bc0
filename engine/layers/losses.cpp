// Softmax cross-entropy as a Loss, and the table.
#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/layers/loss.h"
#include "bantam/kernels/contracts/head/softmax_cross_entropy.h"

namespace bantam {
namespace {

class SoftmaxCrossEntropy : public Loss {
 public:
  explicit SoftmaxCrossEntropy(float label_smoothing) : label_smoothing_(label_smoothing) {}

  std::string_view kind() const override { return "softmax_cross_entropy"; }

  std::vector<TensorFacts> targets(const Shape& output) const override {
    if (output.rank() != 1)
      throw ShapeError(
          fmt::format("a model ends with one value a class, as that of dense: {{units: classes}}; this ends with {}",
                      to_string(output)));
    return {{.name = std::string(kLabels), .dtype = DType::int32, .classes = output[0]}};
  }

  Tensor forward(const Context& context, const Tensor& output, const TensorMap& batch,
                 const LossCall& call) const override {
    return ops::softmax_cross_entropy(context, output, batch.at(kLabels), options(call)).loss;
  }

  bool supports_meta() const override { return true; }

  std::optional<LossSpec> as_softmax_cross_entropy(const LossCall& call) const override {
    return LossSpec{options(call), call.seed};
  }

 private:
  ops::SoftmaxCrossEntropyOptions options(const LossCall& call) const {
    return {
        .label_smoothing = label_smoothing_, .divisor = call.divisor, .metrics = call.sums, .metric_slot = call.slot};
  }

  float label_smoothing_;
};

LossPtr read_softmax_cross_entropy(ConfigMap& options) {
  const double smoothing = options.number("label_smoothing", {.min = 0, .max = 1, .max_open = true}, 0.0);
  return softmax_cross_entropy({.label_smoothing = static_cast<float>(smoothing)});
}

}  // namespace

void add_to_sums(const Context& context, const LossCall& call, const LossSums& sums) {
  static_assert(sizeof(kernels::MetricSums) == 3 * sizeof(double));
  const double values[] = {sums.loss, sums.correct, sums.samples};
  add_to_sums(context, DeviceSums{reinterpret_cast<double*>(call.sums), call.slot}, values);
}

LossPtr softmax_cross_entropy(SoftmaxCrossEntropyLoss options) {
  if (!(options.label_smoothing >= 0.0f && options.label_smoothing < 1.0f))
    throw ConfigError(
        fmt::format("softmax_cross_entropy: label_smoothing must be in [0, 1), got {}", options.label_smoothing));
  return std::make_shared<const SoftmaxCrossEntropy>(options.label_smoothing);
}

Registry<Reader<LossPtr>>& losses() {
  static Registry<Reader<LossPtr>> table("loss", {{"softmax_cross_entropy", read_softmax_cross_entropy}});
  return table;
}

LossPtr read_loss(ConfigMap& section) {
  if (!section.has("loss")) (void)section.text("loss", "softmax_cross_entropy");
  const ConfigNode node = section.node("loss");
  if (node.is_map()) return read_registered(losses(), node);
  return find_reader(losses(), node, node.as_text())(section);
}

}  // namespace bantam
