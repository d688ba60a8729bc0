// Losses of a softmax over classes: cross-entropy, PolyLoss and focal loss.
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/losses/kernel_loss.h"
#include "bantam/kernels/loss/class_loss.h"

namespace bantam {
namespace {

using layers::KernelLoss;
using layers::LossOperands;

/// The options that change the kernel's arithmetic: smoothing, PolyLoss' epsilon, the focal exponent, the ignored
/// label, the target kind.
struct ClassOptions {
  std::string_view kind;
  float smoothing = 0.0f, epsilon = 0.0f, gamma = 0.0f;
  std::optional<std::int32_t> ignore_index;
  LossTargets targets = LossTargets::labels;
};

class ClassKernelLoss : public KernelLoss {
 public:
  ClassKernelLoss(ClassOptions options, LossReduction reduction, std::vector<float> class_weights)
      : KernelLoss(reduction, std::move(class_weights)), options_(options) {
    if (!(options_.smoothing >= 0.0f && options_.smoothing < 1.0f))
      throw ConfigError(
          fmt::format("{}: label_smoothing must be in [0, 1), got {}", options_.kind, options_.smoothing));
    layers::check_weights(options_.kind, "class_weights", constants());
    if (options_.ignore_index && options_.targets == LossTargets::values)
      throw ConfigError(fmt::format("{}: ignore_index is a label, and targets: values has none", options_.kind));
  }

  std::optional<std::int32_t> ignored_label() const override { return options_.ignore_index; }
  std::string_view kind() const override { return options_.kind; }
  OutputKind output_kind() const override { return OutputKind::softmax; }

  std::vector<TensorFacts> targets(const Shape& output) const override {
    std::vector<TensorFacts> facts = layers::loss_targets(options_.kind, options_.targets, output);
    layers::check_weight_count(options_.kind, "class_weights", constants().size(), output);
    return facts;
  }

 protected:
  std::size_t workspace_bytes(const Shape& output) const override {
    return kernels::class_loss_workspace_bytes(shape_of(output));
  }
  void run(const Context& context, const LossOperands& operands, const kernels::LossScale& scale,
           const kernels::LossOutputs& out, kernels::Workspace workspace) const override {
    const bool labelled = options_.targets == LossTargets::labels;
    const kernels::ClassLossInputs inputs{.logits = operands.output.data(),
                                          .labels = labelled ? operands.target.as<std::int32_t>() : nullptr,
                                          .targets = labelled ? nullptr : operands.target.as<float>(),
                                          .class_weights = operands.constants_or_null(),
                                          .scale = scale};
    BANTAM_KERNEL(context.exec, class_loss, shape_of(operands.output.shape()), operands.output.dtype(), inputs, out,
                  workspace);
  }
  const ClassOptions& class_options() const { return options_; }

 private:
  kernels::ClassLossShape shape_of(const Shape& output) const {
    const std::int64_t batch = output[0], classes = output[-1];
    return {.batch = batch,
            .positions = output.without_first().elements() / std::max<std::int64_t>(classes, 1),
            .classes = classes,
            .smoothing = options_.smoothing,
            .epsilon = options_.epsilon,
            .gamma = options_.gamma,
            .has_ignored = options_.ignore_index.has_value(),
            .ignored = options_.ignore_index.value_or(0)};
  }

  ClassOptions options_;
};

/// The plain one, one label a sample, runs with the kernels of the head, and in fused ones.
class SoftmaxCrossEntropy : public ClassKernelLoss {
 public:
  explicit SoftmaxCrossEntropy(SoftmaxCrossEntropyLoss options)
      : ClassKernelLoss({.kind = "softmax_cross_entropy",
                         .smoothing = options.label_smoothing,
                         .ignore_index = options.ignore_index,
                         .targets = options.targets},
                        options.reduction, std::move(options.class_weights)) {}

  std::vector<TensorFacts> targets(const Shape& output) const override {
    if (output.rank() == 0 || output.rank() == 2)
      throw ShapeError(fmt::format(
          "a model ends with one value a class, as that of dense: {{units: classes}}, or with (height, "
          "width, classes); this ends with {}{}",
          to_string(output), output.rank() == 2 ? "; put global_average_pool or flatten before its end" : ""));
    return ClassKernelLoss::targets(output);
  }

  Tensor forward(const Context& context, const Tensor& output, const TensorMap& batch,
                 const LossCall& call) const override {
    if (!plain() || output.shape().rank() != 2) return ClassKernelLoss::forward(context, output, batch, call);
    return ops::softmax_cross_entropy(context, output, batch.at(kLabels), spec(call, output.shape()[0])).loss;
  }

  std::optional<LossSpec> as_softmax_cross_entropy(const LossCall& call) const override {
    if (!plain()) return std::nullopt;
    return LossSpec{spec(call, 0), call.seed};
  }

 private:
  bool plain() const {
    return constants().empty() && !class_options().ignore_index && class_options().targets == LossTargets::labels;
  }
  /// `batch` of 0: the op knows it.
  ops::SoftmaxCrossEntropyOptions spec(const LossCall& call, std::int64_t batch) const {
    return {.label_smoothing = class_options().smoothing,
            .divisor = batch > 0 || sums() || call.divisor > 0.0f ? divisor_of(call, batch) : 0.0f,
            .metrics = call.sums,
            .metric_slot = call.slot};
  }
};

}  // namespace

LossPtr softmax_cross_entropy(SoftmaxCrossEntropyLoss options) {
  return std::make_shared<const SoftmaxCrossEntropy>(std::move(options));
}

LossPtr poly1_loss(Poly1Loss options) {
  if (!(options.epsilon >= -1.0f) || !std::isfinite(options.epsilon))
    throw ConfigError(fmt::format("poly1: epsilon must be -1 or more, got {}", options.epsilon));
  SoftmaxCrossEntropyLoss& entropy = options.cross_entropy;
  return std::make_shared<const ClassKernelLoss>(ClassOptions{.kind = "poly1",
                                                              .smoothing = entropy.label_smoothing,
                                                              .epsilon = options.epsilon,
                                                              .ignore_index = entropy.ignore_index,
                                                              .targets = entropy.targets},
                                                 entropy.reduction, std::move(entropy.class_weights));
}

LossPtr focal_loss(FocalLoss options) {
  if (!(options.gamma >= 0.0f)) throw ConfigError(fmt::format("focal: gamma must be 0 or more, got {}", options.gamma));
  if (options.targets == LossTargets::values) return layers::binary_focal(options);
  if (options.alpha >= 0.0f)
    throw ConfigError("focal: alpha is the weight of binary targets (targets: values); labels have class_weights");
  return std::make_shared<const ClassKernelLoss>(
      ClassOptions{.kind = "focal", .gamma = options.gamma, .ignore_index = options.ignore_index}, options.reduction,
      std::move(options.class_weights));
}

namespace layers {
namespace {

/// Reads the options that cross-entropy and PolyLoss have in common.
SoftmaxCrossEntropyLoss read_cross_entropy(ConfigMap& options) {
  SoftmaxCrossEntropyLoss loss;
  loss.label_smoothing = static_cast<float>(options.number(
      {"label_smoothing",
       "Share of each target that is spread evenly over all classes: the label's own target is 1 - s + s / classes. "
       "Less certain, often better generalising models; 0 trains on the labels alone.",
       "0.1"},
      {.min = 0, .max = 1, .max_open = true}, 0.0));
  loss.class_weights = read_weights(
      options, {"class_weights",
                "A factor of each class's loss, one a class. The mean is over samples, as Keras' class_weight: it is "
                "not divided by the weights, as PyTorch's is.",
                "[1, 2.5, 1]", "1 each"});
  loss.ignore_index = read_ignore_index(options);
  loss.targets =
      read_targets(options, "probabilities of the classes (float32 'targets'), as mixed or distilled labels have");
  loss.reduction = read_reduction(options);
  return loss;
}

LossPtr read_softmax_cross_entropy(ConfigMap& options) {
  options.describe(
      "-log softmax(output)[label], the mean over the batch: Keras' SparseCategoricalCrossentropy(from_logits=True), "
      "PyTorch's CrossEntropyLoss. The model ends with one value a class: (classes), or (height, width, classes) for a "
      "class a pixel.",
      "softmax_cross_entropy: {label_smoothing: 0.1}");
  const SoftmaxCrossEntropyLoss loss = read_cross_entropy(options);
  return made_at(options, [&] { return softmax_cross_entropy(loss); });
}

LossPtr read_poly1(ConfigMap& options) {
  options.describe(
      "-log p + epsilon · (1 - p), with the softmax's probability p of the label: PolyLoss (Leng et al., 2022). It has "
      "the options of softmax_cross_entropy; with label smoothing or targets: values both parts are sums over the "
      "classes, each times its target.",
      "poly1: {epsilon: 2, label_smoothing: 0.1}");
  Poly1Loss loss;
  loss.epsilon = static_cast<float>(options.number(
      {"epsilon",
       "Factor of 1 - p. The gradient is the cross-entropy's times 1 + epsilon · p: above 0 samples that are nearly "
       "right keep more of it, below 0 less, as with focal; 0 is the cross-entropy.",
       "2"},
      {.min = -1, .max = 1e6}, 1.0));
  loss.cross_entropy = read_cross_entropy(options);
  return made_at(options, [&] { return poly1_loss(loss); });
}

LossPtr read_focal(ConfigMap& options) {
  options.describe(
      "-(1 - p)^gamma · log p, with the probability p of what is right: cross-entropy in which samples that are right "
      "already weigh less (Lin et al., 2017). With targets: values it is torchvision's sigmoid_focal_loss.",
      "focal: {gamma: 2, targets: values, alpha: 0.25}");
  FocalLoss loss;
  loss.gamma = static_cast<float>(
      options.number({"gamma", "Exponent of 1 - p; 0 is the cross-entropy.", "1.5"}, {.min = 0, .max = 100}, 2.0));
  loss.targets = read_targets(options, "each output is a binary question with its own target (float32 'targets')");
  if (const auto alpha =
          options.find({"alpha", "With targets: values, the weight of targets 1; targets 0 have 1 - alpha.", "0.25",
                        "both weigh 1"}))
    loss.alpha = static_cast<float>(alpha->as_number({.min = 0, .max = 1}));
  loss.class_weights = read_weights(
      options,
      {"class_weights", "With targets: labels, a factor of each class's loss, one a class.", "[1, 2.5, 1]", "1 each"});
  loss.ignore_index = read_ignore_index(options);
  loss.reduction = read_reduction(options);
  return made_at(options, [&] { return focal_loss(loss); });
}

}  // namespace

LossRows class_loss_rows() {
  return {{"softmax_cross_entropy", read_softmax_cross_entropy}, {"poly1", read_poly1}, {"focal", read_focal}};
}

}  // namespace layers
}  // namespace bantam
