// Layers that return a view of their input with another shape.
#include <algorithm>

#include <fmt/ranges.h>

#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class FlattenLayer : public BuiltInLayer {
 public:
  std::string_view kind() const override { return "flatten"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return {single(kind(), inputs).elements()}; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function([](const Context& context, Tensor x) { return ops::flatten(context, x); });
  }
};

class ReshapeLayer : public BuiltInLayer {
 public:
  explicit ReshapeLayer(ReshapeOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "reshape"; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single(kind(), inputs);
    std::int64_t rest = in.elements();  // elements divided by the extents so far
    bool fits = true;
    for (const std::int64_t extent : checked_extents()) {
      if (extent == -1) continue;
      fits = fits && rest % extent == 0;
      rest /= extent;
    }
    std::vector<std::int64_t> shape = options_.shape;
    const auto inferred = std::ranges::find(shape, -1);
    if (!fits || (inferred == shape.end() && rest != 1))
      throw ShapeError(fmt::format("reshape: the {} elements of {} do not fit ({})", in.elements(), to_string(in),
                                   fmt::join(shape, ", ")));
    if (inferred != shape.end()) *inferred = rest;
    return Shape(shape);
  }

  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape> inputs) const override {
    return bind_function([shape = output_shape(inputs)](const Context& context, Tensor x) {
      return ops::reshape(context, x, shape.prepend(x.shape()[0]));
    });
  }

 private:
  Described describe() const override { return options_; }
  const std::vector<std::int64_t>& checked_extents() const {
    const std::vector<std::int64_t>& shape = options_.shape;
    const auto count = [&](auto&& holds) { return std::ranges::count_if(shape, holds); };
    const bool known = count([](std::int64_t extent) { return extent == 0 || extent < -1; }) == 0;
    const bool one_open = count([](std::int64_t extent) { return extent == -1; }) <= 1;
    if (shape.empty() || std::ssize(shape) >= Shape::kMaxRank || !known || !one_open)
      throw ShapeError(fmt::format("reshape: expected 1 to {} extents of at least 1, one of which may be -1, got ({})",
                                   Shape::kMaxRank - 1, fmt::join(shape, ", ")));
    return shape;
  }
  ReshapeOptions options_;
};

}  // namespace

LayerPtr flatten() { return std::make_shared<FlattenLayer>(); }
LayerPtr reshape(ReshapeOptions options) { return std::make_shared<ReshapeLayer>(std::move(options)); }

namespace layers {

LayerPtr read_flatten(ConfigMap& options) {
  options.describe("All values in one axis, as dense layers need them. Copies nothing.", "flatten");
  return flatten();
}

LayerPtr read_reshape(ConfigMap& options) {
  options.describe("The same values in the same order under another shape. Copies nothing.",
                   "reshape: {shape: [7, 7, -1]}");
  return reshape(
      {.shape = options.integers(
           {"shape", "Extents without the batch's. One of them may be -1: the rest of the values.", "[7, 7, -1]"},
           {.min = -1, .max = std::int64_t{1} << 40})});
}

}  // namespace layers
}  // namespace bantam
