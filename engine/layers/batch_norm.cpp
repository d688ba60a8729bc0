// Batch normalisation with its running statistics, and the activation after it.
#include "bantam/engine/ops/batch_norm.h"

#include "bantam/engine/layers/bound_norm.h"
#include "bantam/engine/layers/norm_options.h"
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
    const Shape& in = single(kind(), inputs);
    if (in.rank() < 1) throw ShapeError("batch_norm: expected an input with channels, got a scalar");
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

}  // namespace bantam
