// Batch normalisation with its running statistics, and the activation after it.
#include "bantam/engine/ops/batch_norm.h"

#include "bantam/engine/layers/bound_norm.h"
#include "bantam/engine/layers/norm_options.h"
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"
#include "bantam/engine/ops/sync_batch_norm.h"

namespace bantam {
namespace {

using namespace layers;

/// A norm over its parameters and buffers.
class BoundBatchNorm : public BoundLayer, public NormSource {
 public:
  BoundBatchNorm(LayerScope& scope, BufferArena& buffers, const BatchNormOptions& options, bool synchronised,
                 const Shape& channels)
      : synchronised_(synchronised),
        norm_(options,
              options.scale ? &scope.parameter("scale", channels, ones(), true, false, options.frozen) : nullptr,
              options.shift ? &scope.parameter("shift", channels, zeros(), true, false, options.frozen) : nullptr,
              scope.buffer("running_mean", channels, 0.0f), scope.buffer("running_variance", channels, 1.0f), buffers) {
  }

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return synchronised_ ? ops::sync_batch_norm(context, x, norm()) : ops::batch_norm(context, x, norm());
  }
  Norm norm() const override { return norm_.norm(); }

 private:
  bool synchronised_;
  BoundNorm norm_;
};

class BatchNormLayer : public BuiltInLayer {
 public:
  BatchNormLayer(BatchNormOptions options, bool synchronised) : options_(options), synchronised_(synchronised) {}
  bool synchronised() const { return synchronised_; }
  const BatchNormOptions& all_options() const { return options_; }
  std::string_view kind() const override { return "batch_norm"; }
  bool uses_batch_statistics() const override { return !options_.frozen; }
  NodeTraits traits() const override {
    if (options_.frozen || synchronised_) return BuiltInLayer::traits();
    return {.may_defer_norm = options_.activation.kind == Activation::none,
            .skips_unused_output = true,
            .separates_inner_ops = true};
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = with_channels(kind(), inputs);
    if (const float rate = options_.running_rate(); !(rate > 0.0f && rate <= 1.0f))
      throw ShapeError(fmt::format("batch_norm: rate must be in (0, 1], got {}", rate));
    return in;
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena& buffers,
                                   std::span<const Shape> inputs) const override {
    return std::make_unique<BoundBatchNorm>(scope, buffers, options_, synchronised_, Shape{inputs[0][-1]});
  }

 private:
  /// Patterns are of norms over the batch: a frozen one fits none, nor does one over the batches of all ranks.
  Described describe() const override { return options_.frozen || synchronised_ ? Described() : Described(options_); }
  BatchNormOptions options_;
  bool synchronised_;
};

}  // namespace

LayerPtr batch_norm(BatchNormOptions options) { return std::make_shared<BatchNormLayer>(options, false); }

LayerPtr synchronised_batch_norm(BatchNormOptions options) { return std::make_shared<BatchNormLayer>(options, true); }

bool is_synchronised(const Layer& layer) {
  const auto* norm = dynamic_cast<const BatchNormLayer*>(&layer);
  return norm != nullptr && norm->synchronised();
}

const BatchNormOptions* batch_norm_options(const Layer& layer) {
  const auto* norm = dynamic_cast<const BatchNormLayer*>(&layer);
  return norm != nullptr ? &norm->all_options() : nullptr;
}

namespace layers {
namespace {

/// How fast the running statistics move may be said Keras' way (momentum: the share that stays) or PyTorch's (rate: the
/// share that is new, which PyTorch calls momentum). Nothing where neither is.
std::optional<float> read_running_rate(ConfigMap& options) {
  const ConfigKey kRate{"rate",
                        "Share of a batch's statistics in the running statistics, which PyTorch calls momentum. In "
                        "place of `momentum`.",
                        "0.1", "1 - momentum"};
  if (!options.has(kRate)) {
    const ConfigNode momentum = options.node(
        {"momentum",
         "Share of the running statistics that stays at each batch, as in Keras: 0.9 is PyTorch's 0.1. auto: 0.99, and "
         "in the first updates less, updates / (updates + 10), so that the statistics of a short run are those of its "
         "last batches.",
         "0.9"},
        "auto");
    if (momentum.is_text("auto")) return std::nullopt;
    return static_cast<float>(1.0 - momentum.as_number({.min = 0, .max = 1, .max_open = true}));
  }
  if (options.has("momentum"))
    options.node("momentum").fail_at_key("give momentum (Keras: what stays) or rate (PyTorch: what is new), not both");
  return static_cast<float>(options.number(kRate, {.min = 0, .max = 1, .min_open = true}));
}

}  // namespace

LayerPtr read_batch_norm(ConfigMap& options) {
  options.describe(
      "Batch normalisation over the last axis: y = activation(scale · (x - mean) / √(variance + epsilon) + shift). "
      "Training uses the batch's statistics, evaluation the running ones.",
      "batch_norm: {momentum: 0.9, activation: relu}");
  BatchNormOptions norm;
  norm.rate = read_running_rate(options);
  norm.epsilon = static_cast<float>(
      options.number({"epsilon", "Added to the variance, against division by 0. Keras' default; PyTorch has 1e-5."},
                     kNormEpsilon, 1e-3));
  norm.unbiased = options.boolean(
      {"unbiased",
       "true: the running variance is that of a sample (n - 1), as PyTorch and Keras' fused kernel have it. false: n."},
      true);
  norm.scale = options.boolean(kNormScale, true);
  norm.shift = options.boolean(kNormShift, true);
  norm.activation = read_activation(options);
  return batch_norm(norm);
}

}  // namespace layers
}  // namespace bantam
