// Layers that join two or more inputs: side by side, their sum, their mean, their product.
#include <algorithm>

#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"
#include "bantam/kernels/elementwise/piecewise.h"

namespace bantam {
namespace {

using namespace layers;

void check_inputs(std::string_view kind, std::span<const Shape> inputs) {
  if (inputs.size() < 2) throw ShapeError(fmt::format("{}: expected two or more inputs, got {}", kind, inputs.size()));
}

ShapeError misfit(std::string_view kind, const Shape& a, const Shape& b, std::string_view expected) {
  return ShapeError(
      fmt::format("{}: the inputs {} and {} do not fit; expected {}", kind, to_string(a), to_string(b), expected));
}

class BoundJoin : public BoundLayer {
 public:
  using Function = Tensor (*)(const Context&, std::span<Tensor>);
  explicit BoundJoin(Function function) : function_(function) {}
  Tensor forward(const Context& context, std::span<Tensor> inputs) override { return function_(context, inputs); }

 private:
  Function function_;
};

class JoinLayer : public BuiltInLayer {
 public:
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }
};

class ConcatLayer : public JoinLayer {
 public:
  std::string_view kind() const override { return "concat"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    check_inputs(kind(), inputs);
    std::int64_t channels = 0;
    for (const Shape& input : inputs) {
      if (input.rank() < 1 || input.rank() != inputs[0].rank() || input.with(-1, 1) != inputs[0].with(-1, 1))
        throw misfit(kind(), inputs[0], input, "shapes that differ in their last axis alone");
      channels += input[-1];
    }
    return inputs[0].with(-1, channels);
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return std::make_unique<BoundJoin>(
        [](const Context& context, std::span<Tensor> inputs) { return ops::concat(context, inputs); });
  }
};

class AverageLayer : public JoinLayer {
 public:
  std::string_view kind() const override { return "average"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    check_inputs(kind(), inputs);
    for (const Shape& input : inputs)
      if (input != inputs[0]) throw misfit(kind(), inputs[0], input, "inputs of one shape");
    return inputs[0];
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return std::make_unique<BoundJoin>(
        [](const Context& context, std::span<Tensor> inputs) { return ops::average(context, inputs); });
  }
};

/// Whether `factors`, (C) or (1, …, C), has a value for each channel of `x`, (…, C).
bool scales_channels(const Shape& x, const Shape& factors) {
  if (x.rank() < 1 || factors.rank() < 1 || (factors.rank() != 1 && factors.rank() != x.rank())) return false;
  return factors[-1] == x[-1] && factors.elements() == x[-1];
}

class MultiplyLayer : public JoinLayer {
 public:
  std::string_view kind() const override { return "multiply"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    check_inputs(kind(), inputs);
    Shape product = inputs[0];
    for (const Shape& input : inputs.subspan(1)) {
      if (input == product || scales_channels(product, input)) continue;
      if (!scales_channels(input, product))
        throw misfit(kind(), product, input, "inputs of one shape, or (…, C) and (C)");
      product = input;
    }
    return product;
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return std::make_unique<BoundJoin>([](const Context& context, std::span<Tensor> inputs) {
      Tensor product = std::move(inputs[0]);
      for (std::size_t i = 1; i < inputs.size(); ++i)
        product = ops::multiply(i + 1 == inputs.size() ? context : context.inner(), product, inputs[i]);
      return product;
    });
  }
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

LayerPtr concat() { return std::make_shared<ConcatLayer>(); }
LayerPtr average() { return std::make_shared<AverageLayer>(); }
LayerPtr multiply() { return std::make_shared<MultiplyLayer>(); }
LayerPtr add(ActivationOptions activation) { return std::make_shared<AddLayer>(activation); }

namespace layers {

LayerPtr read_concat(ConfigMap& options) {
  options.describe("Two or more inputs one after the other along the last axis: their channels side by side.",
                   "concat");
  return concat();
}

LayerPtr read_average(ConfigMap& options) {
  options.describe("The mean of two or more inputs of one shape.", "average");
  return average();
}

LayerPtr read_multiply(ConfigMap& options) {
  options.describe(
      "The product of two or more inputs, element by element. Of an image and (channels): each channel times its "
      "factor.",
      "multiply");
  return multiply();
}

LayerPtr read_add(ConfigMap& options) {
  options.describe("The sum of its inputs, which have one shape, then the activation.",
                   "add: {inputs: [input, conv2d], activation: relu}");
  return add(read_activation(options));
}

}  // namespace layers
}  // namespace bantam
