// Layers that join two or more inputs: side by side, their mean, their product.
#include <algorithm>

#include "bantam/engine/layers/support.h"

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

}  // namespace

LayerPtr concat() { return std::make_shared<ConcatLayer>(); }
LayerPtr average() { return std::make_shared<AverageLayer>(); }
LayerPtr multiply() { return std::make_shared<MultiplyLayer>(); }

}  // namespace bantam
