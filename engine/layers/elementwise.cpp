// Layers that keep the shape: activation, softmax, dropout, and the sum that ends a residual block.
#include "bantam/engine/layers/support.h"
#include "bantam/kernels/elementwise/piecewise.h"

namespace bantam {
namespace {

using namespace layers;

class ActivationLayer : public BuiltInLayer {
 public:
  explicit ActivationLayer(ActivationOptions options) : options_(options) {}
  std::string_view kind() const override { return "activation"; }
  NodeTraits traits() const override {
    return {.skips_unused_output = kernels::is_piecewise(options_.kind), .separates_inner_ops = true};
  }
  Shape output_shape(std::span<const Shape> inputs) const override { return single(kind(), inputs); }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function([options = options_](const Context& context, Tensor x) {
      return ops::activation(context, std::move(x), options.kind, options.slope);
    });
  }

 private:
  Described describe() const override { return options_; }
  ActivationOptions options_;
};

class SoftmaxLayer : public BuiltInLayer {
 public:
  std::string_view kind() const override { return "softmax"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single(kind(), inputs);
    if (in.rank() < 1) throw ShapeError("softmax: expected an input with classes, got a scalar");
    return in;
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function(ops::softmax);
  }
};

/// What is dropped together: elements, channels or samples.
struct DropoutKind {
  const char* name;
  Tensor (*op)(const Context&, Tensor, float rate);
  int least_rank;  ///< of the input
};

class DropoutLayer : public BuiltInLayer {
 public:
  DropoutLayer(DropoutKind dropout, DropoutOptions options) : dropout_(dropout), options_(options) {}
  std::string_view kind() const override { return dropout_.name; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (!(options_.rate >= 0.0f && options_.rate < 1.0f))
      throw ShapeError(fmt::format("{}: the rate must be in [0, 1), got {}", kind(), options_.rate));
    const Shape& in = single(kind(), inputs);
    if (in.rank() < dropout_.least_rank)
      throw ShapeError(fmt::format("{}: expected an input with channels, got a scalar", kind()));
    return in;
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function([op = dropout_.op, rate = options_.rate](const Context& context, Tensor x) {
      return op(context, std::move(x), rate);
    });
  }

 private:
  Described describe() const override { return options_; }
  DropoutKind dropout_;
  DropoutOptions options_;
};

class BoundAdd : public BoundLayer {
 public:
  explicit BoundAdd(ActivationOptions options) : options_(options) {}
  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    Tensor sum = std::move(inputs[0]);
    const std::size_t last = inputs.size() - 1;
    for (std::size_t i = 1; i < last; ++i) sum = ops::add(context.inner(), std::move(sum), std::move(inputs[i]));
    return ops::add(context, std::move(sum), std::move(inputs[last]), {options_.kind, options_.slope});
  }

 private:
  ActivationOptions options_;
};

class AddLayer : public BuiltInLayer {
 public:
  explicit AddLayer(ActivationOptions options) : options_(options) {}
  std::string_view kind() const override { return "add"; }
  NodeTraits traits() const override {
    return {.applies_deferred_norms = true,
            .skips_unused_output = kernels::is_piecewise(options_.kind),
            .separates_inner_ops = true};
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs.size() < 2) throw ShapeError(fmt::format("add: expected two or more inputs, got {}", inputs.size()));
    for (const Shape& input : inputs)
      if (input != inputs[0])
        throw ShapeError(fmt::format("add: the inputs {} and {} differ", to_string(inputs[0]), to_string(input)));
    return inputs[0];
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return std::make_unique<BoundAdd>(options_);
  }

 private:
  Described describe() const override { return options_; }
  ActivationOptions options_;
};

}  // namespace

LayerPtr activation(ActivationOptions options) { return std::make_shared<ActivationLayer>(options); }
LayerPtr softmax() { return std::make_shared<SoftmaxLayer>(); }
LayerPtr dropout(DropoutOptions options) {
  return std::make_shared<DropoutLayer>(DropoutKind{"dropout", ops::dropout, 0}, options);
}
LayerPtr spatial_dropout(DropoutOptions options) {
  return std::make_shared<DropoutLayer>(DropoutKind{"spatial_dropout", ops::spatial_dropout, 1}, options);
}
LayerPtr drop_path(DropoutOptions options) {
  return std::make_shared<DropoutLayer>(DropoutKind{"drop_path", ops::drop_path, 0}, options);
}
LayerPtr add(ActivationOptions activation) { return std::make_shared<AddLayer>(activation); }

}  // namespace bantam
