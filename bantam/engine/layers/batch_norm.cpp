// Batch normalisation with its running statistics, and the activation behind it.
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class BatchNormLayer : public Layer {
 public:
  explicit BatchNormLayer(BatchNormOptions options) : options_(options) {}
  std::string_view kind() const override { return "batch_norm"; }
  bool uses_batch_statistics() const override { return true; }
  bool defers_norm() const override { return options_.activation.kind == kernels::Activation::none; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single(kind(), inputs);
    if (in.rank() < 1) throw ShapeError("batch_norm: expected an input with channels, got a scalar");
    if (!(options_.rate > 0.0f && options_.rate <= 1.0f))
      throw ShapeError(fmt::format("batch_norm: rate must be in (0, 1], got {}", options_.rate));
    return in;
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena& buffers,
                                   std::span<const Shape> inputs) const override {
    const Shape channels{inputs[0][-1]};
    Parameter* scale = options_.scale ? &scope.parameter("scale", channels, ones(), true, false) : nullptr;
    Parameter* shift = options_.shift ? &scope.parameter("shift", channels, zeros(), true, false) : nullptr;
    const Buffer& mean = scope.buffer("running_mean", channels, 0.0f);
    const Buffer& variance = scope.buffer("running_variance", channels, 1.0f);
    return bind_function([=, &mean, &variance, &buffers, options = options_](const Context& context, Tensor x) {
      const ops::BatchNormTensors tensors{.scale = scale != nullptr ? scale->value() : Tensor(),
                                          .shift = shift != nullptr ? shift->value() : Tensor(),
                                          .running_mean = buffers.current(mean),
                                          .running_variance = buffers.current(variance),
                                          .pending_mean = buffers.pending(mean),
                                          .pending_variance = buffers.pending(variance)};
      return ops::batch_norm(context, x, tensors,
                             {.epsilon = options.epsilon,
                              .running = {options.rate, options.unbiased},
                              .activation = {options.activation.kind, options.activation.slope}});
    });
  }

  std::int64_t traffic(std::span<const Shape> inputs) const override { return 3 * inputs[0].elements(); }

 private:
  Described describe() const override { return options_; }
  BatchNormOptions options_;
};

}  // namespace

LayerPtr batch_norm(BatchNormOptions options) { return std::make_shared<BatchNormLayer>(options); }

}  // namespace bantam
