// Losses of each value: mse, mae, huber, binary cross-entropy, binary focal loss.
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/losses/kernel_loss.h"
#include "bantam/kernels/loss/value_loss.h"

namespace bantam {
namespace {

using kernels::ValueLossKind;
using kernels::ValueLossShape;

class ValueKernelLoss : public layers::KernelLoss {
 public:
  /// `rule` has the kind and its numbers. One weight counts for all values.
  ValueKernelLoss(std::string_view kind, const ValueLossShape& rule, LossReduction reduction,
                  std::vector<float> positive_weights = {})
      : KernelLoss(reduction, std::move(positive_weights)), kind_(kind), rule_(rule) {
    layers::check_weights(kind_, "positive_weights", constants());
  }

  std::string_view kind() const override { return kind_; }
  bool counts_correct() const override {
    return rule_.kind == ValueLossKind::binary_cross_entropy || rule_.kind == ValueLossKind::binary_focal;
  }
  OutputKind output_kind() const override { return counts_correct() ? OutputKind::sigmoid : OutputKind::values; }
  std::vector<TensorFacts> targets(const Shape& output) const override {
    std::vector<TensorFacts> facts = layers::loss_targets(kind_, LossTargets::values, output);
    if (constants().size() > 1) layers::check_weight_count(kind_, "positive_weights", constants().size(), output);
    return facts;
  }

 protected:
  std::size_t workspace_bytes(const Shape& output) const override {
    return kernels::value_loss_workspace_bytes(shape_of(output));
  }
  void run(const Context& context, const layers::LossOperands& operands, const kernels::LossScale& scale,
           const kernels::LossOutputs& out, kernels::Workspace workspace) const override {
    const kernels::ValueLossInputs inputs{.x = operands.output.data(),
                                          .targets = operands.target.as<float>(),
                                          .positive_weights = operands.constants_or_null(),
                                          .scale = scale};
    BANTAM_KERNEL(context.exec, value_loss, shape_of(operands.output.shape()), operands.output.dtype(), inputs, out,
                  workspace);
  }

 private:
  ValueLossShape shape_of(const Shape& output) const {
    ValueLossShape shape = rule_;
    shape.batch = output[0];
    shape.values = output.without_first().elements();
    shape.channels = constants().size() > 1 ? output[-1] : 1;
    return shape;
  }

  std::string_view kind_;  // a literal
  ValueLossShape rule_;
};

}  // namespace

LossPtr binary_cross_entropy(BinaryCrossEntropyLoss options) {
  if (!(options.label_smoothing >= 0.0f && options.label_smoothing < 1.0f))
    throw ConfigError(
        fmt::format("binary_cross_entropy: label_smoothing must be in [0, 1), got {}", options.label_smoothing));
  return std::make_shared<const ValueKernelLoss>(
      "binary_cross_entropy",
      ValueLossShape{.kind = ValueLossKind::binary_cross_entropy, .smoothing = options.label_smoothing},
      options.reduction, std::move(options.positive_weights));
}

LossPtr mse_loss(LossReduction reduction) {
  return std::make_shared<const ValueKernelLoss>("mse", ValueLossShape{.kind = ValueLossKind::squared}, reduction);
}

LossPtr mae_loss(LossReduction reduction) {
  return std::make_shared<const ValueKernelLoss>("mae", ValueLossShape{.kind = ValueLossKind::absolute}, reduction);
}

LossPtr huber_loss(float delta, LossReduction reduction) {
  if (!(delta > 0.0f) || !std::isfinite(delta))
    throw ConfigError(fmt::format("huber: delta must be above 0, got {}", delta));
  return std::make_shared<const ValueKernelLoss>("huber", ValueLossShape{.kind = ValueLossKind::huber, .delta = delta},
                                                 reduction);
}

namespace layers {

LossPtr binary_focal(const FocalLoss& options) {
  if (!options.class_weights.empty() || options.ignore_index)
    throw ConfigError("focal: class_weights and ignore_index are about labels; with targets: values there is alpha");
  if (options.alpha > 1.0f) throw ConfigError(fmt::format("focal: alpha must be at most 1, got {}", options.alpha));
  return std::make_shared<const ValueKernelLoss>(
      "focal", ValueLossShape{.kind = ValueLossKind::binary_focal, .gamma = options.gamma, .alpha = options.alpha},
      options.reduction);
}

namespace {

LossPtr read_binary_cross_entropy(ConfigMap& options) {
  options.describe(
      "-t · log p - (1 - t) · log(1 - p) of each output, p its sigmoid: Keras' BinaryCrossentropy(from_logits=True), "
      "PyTorch's BCEWithLogitsLoss. Reads float32 'targets' in [0, 1] of the output's shape: several labels a sample.",
      "binary_cross_entropy: {positive_weights: [3]}");
  BinaryCrossEntropyLoss loss;
  loss.label_smoothing =
      static_cast<float>(options.number({"label_smoothing", "Targets t become (1 - s) · t + s / 2.", "0.1"},
                                        {.min = 0, .max = 1, .max_open = true}, 0.0));
  loss.positive_weights = read_weights(
      options, {"positive_weights",
                "Weights of targets 1, where they are rare: a list of one number for all, or of one a value of the "
                "output's last axis.",
                "[3] | [1, 4, 2.5]", "1"});
  loss.reduction = read_reduction(options);
  return binary_cross_entropy(std::move(loss));
}

LossPtr read_mse(ConfigMap& options) {
  options.describe("Squared differences of output and float32 'targets' of its shape.", "mse");
  return mse_loss(read_reduction(options));
}

LossPtr read_mae(ConfigMap& options) {
  options.describe("Absolute differences of output and float32 'targets' of its shape: PyTorch's L1Loss.", "mae");
  return mae_loss(read_reduction(options));
}

LossPtr read_huber(ConfigMap& options) {
  options.describe(
      "Half the squared differences of output and float32 'targets' up to delta, and from there delta · (|d| - delta / "
      "2): less pull of outliers than mse.",
      "huber: {delta: 0.5}");
  const auto delta = static_cast<float>(options.number({"delta", "Differences from which the loss is a line.", "0.5"},
                                                       {.min = 0, .max = 1e30, .min_open = true}, 1.0));
  return huber_loss(delta, read_reduction(options));
}

}  // namespace

LossRows value_loss_rows() {
  return {
      {"binary_cross_entropy", read_binary_cross_entropy}, {"mse", read_mse}, {"mae", read_mae}, {"huber", read_huber}};
}

}  // namespace layers
}  // namespace bantam
