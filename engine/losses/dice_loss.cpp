// Dice loss, of a class a pixel or of masks.
#include "bantam/kernels/loss/dice_loss.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/losses/kernel_loss.h"

namespace bantam {
namespace {

class DiceKernelLoss : public layers::KernelLoss {
 public:
  explicit DiceKernelLoss(const DiceLoss& options) : KernelLoss(options.reduction, {}), options_(options) {}

  std::string_view kind() const override { return "dice"; }
  OutputKind output_kind() const override {
    return options_.targets == LossTargets::labels ? OutputKind::softmax : OutputKind::sigmoid;
  }
  std::optional<std::int32_t> ignored_label() const override { return options_.ignore_index; }
  std::vector<TensorFacts> targets(const Shape& output) const override {
    if (output.rank() < 2)
      throw ShapeError(
          fmt::format("dice: a model ends with (height, width, classes); this ends with {}", to_string(output)));
    return layers::loss_targets(kind(), options_.targets, output);
  }

 protected:
  std::size_t workspace_bytes(const Shape& output) const override {
    return kernels::dice_loss_workspace_bytes(shape_of(output));
  }
  void run(const Context& context, const layers::LossOperands& operands, const kernels::LossScale& scale,
           const kernels::LossOutputs& out, kernels::Workspace workspace) const override {
    const bool labelled = options_.targets == LossTargets::labels;
    const kernels::DiceLossInputs inputs{.logits = operands.output.data(),
                                         .labels = labelled ? operands.target.as<std::int32_t>() : nullptr,
                                         .targets = labelled ? nullptr : operands.target.as<float>(),
                                         .scale = scale};
    BANTAM_KERNEL(context.exec, dice_loss, shape_of(operands.output.shape()), operands.output.dtype(), inputs, out,
                  workspace);
  }

 private:
  kernels::DiceLossShape shape_of(const Shape& output) const {
    const std::int64_t classes = output[-1];
    return {.batch = output[0],
            .positions = output.without_first().elements() / std::max<std::int64_t>(classes, 1),
            .classes = classes,
            .smooth = options_.smooth,
            .has_ignored = options_.ignore_index.has_value(),
            .ignored = options_.ignore_index.value_or(0)};
  }

  DiceLoss options_;
};

}  // namespace

LossPtr dice_loss(DiceLoss options) {
  if (!(options.smooth > 0.0f) || !std::isfinite(options.smooth))
    throw ConfigError(fmt::format("dice: smooth must be above 0, got {}", options.smooth));
  if (options.ignore_index && options.targets == LossTargets::values)
    throw ConfigError("dice: ignore_index is a label, and targets: values has none");
  return std::make_shared<const DiceKernelLoss>(options);
}

namespace layers {
namespace {

LossPtr read_dice(ConfigMap& options) {
  options.describe(
      "1 - (2 · Σ p · t + s) / (Σ p + Σ t + s) of each class of a sample, sums over its pixels (Milletari et al., "
      "2016): small classes weigh as much as large ones. The model ends with (height, width, classes).",
      "dice: {smooth: 1}");
  DiceLoss loss;
  loss.smooth = static_cast<float>(options.number(
      {"smooth", "s, added to both sides of the fraction: a class that is nowhere, and is found nowhere, has loss 0.",
       "0.1"},
      {.min = 0, .max = 1e30, .min_open = true}, 1.0));
  loss.targets =
      read_targets(options, "masks (float32 'targets' of the output's shape), against each output's sigmoid");
  loss.ignore_index = read_ignore_index(options);
  loss.reduction = read_reduction(options);
  return made_at(options, [&] { return dice_loss(loss); });
}

}  // namespace

LossRows dice_loss_rows() { return {{"dice", read_dice}}; }

}  // namespace layers
}  // namespace bantam
