// Batch normalisation with its running statistics, and the activation after it.
#include "bantam/engine/ops/batch_norm.h"

#include "bantam/engine/layers/bound_norm.h"
#include "bantam/engine/layers/norm_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

/// A norm over its parameters and buffers.
class BoundBatchNorm : public BoundLayer, public NormSource {
 public:
  BoundBatchNorm(LayerScope& scope, BufferArena& buffers, const BatchNormOptions& options, const Shape& channels)
      : norm_(options,
              options.scale ? &scope.parameter("scale", channels, ones(), true, false, options.frozen) : nullptr,
              options.shift ? &scope.parameter("shift", channels, zeros(), true, false, options.frozen) : nullptr,
              scope.buffer("running_mean", channels, 0.0f), scope.buffer("running_variance", channels, 1.0f), buffers) {
  }

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return ops::batch_norm(context, x, norm());
  }
  Norm norm() const override { return norm_.norm(); }

 private:
  BoundNorm norm_;
};

class BatchNormLayer : public BuiltInLayer {
 public:
  explicit BatchNormLayer(BatchNormOptions options) : options_(options) {}
  const BatchNormOptions& all_options() const { return options_; }
  std::string_view kind() const override { return "batch_norm"; }
  bool uses_batch_statistics() const override { return !options_.frozen; }
  NodeTraits traits() const override {
    if (options_.frozen) return BuiltInLayer::traits();
    return {.may_defer_norm = options_.activation.kind == Activation::none,
            .skips_unused_output = true,
            .separates_inner_ops = true};
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single(kind(), inputs);
    if (in.rank() < 1) throw ShapeError("batch_norm: expected an input with channels, got a scalar");
    if (!(options_.rate > 0.0f && options_.rate <= 1.0f))
      throw ShapeError(fmt::format("batch_norm: rate must be in (0, 1], got {}", options_.rate));
    return in;
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena& buffers,
                                   std::span<const Shape> inputs) const override {
    return std::make_unique<BoundBatchNorm>(scope, buffers, options_, Shape{inputs[0][-1]});
  }

 private:
  /// Patterns are of norms over the batch: a frozen one fits none.
  Described describe() const override { return options_.frozen ? Described() : Described(options_); }
  BatchNormOptions options_;
};

}  // namespace

LayerPtr batch_norm(BatchNormOptions options) { return std::make_shared<BatchNormLayer>(options); }

const BatchNormOptions* batch_norm_options(const Layer& layer) {
  const auto* norm = dynamic_cast<const BatchNormLayer*>(&layer);
  return norm != nullptr ? &norm->all_options() : nullptr;
}

}  // namespace bantam
