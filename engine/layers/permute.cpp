// The layer that reorders a sample's axes.
#include <algorithm>

#include <fmt/ranges.h>

#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class PermuteLayer : public BuiltInLayer {
 public:
  explicit PermuteLayer(PermuteOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "permute"; }
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single(kind(), inputs);
    const std::vector<std::int64_t>& dims = options_.dims;
    bool fits = std::ssize(dims) == in.rank();
    for (std::int64_t axis = 1; axis <= in.rank(); ++axis) fits = fits && std::ranges::count(dims, axis) == 1;
    if (!fits)
      throw ShapeError(fmt::format("permute: expected dims with each of the axes 1 to {} of {} once, got ({})",
                                   in.rank(), to_string(in), fmt::join(dims, ", ")));
    std::vector<std::int64_t> extents;
    for (const std::int64_t axis : dims) extents.push_back(in[static_cast<int>(axis) - 1]);
    return Shape(extents);
  }

  /// The batch's axis stays the first.
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    std::vector<int> order{0};
    for (const std::int64_t axis : options_.dims) order.push_back(static_cast<int>(axis));
    return bind_function([order](const Context& context, const Tensor& x) { return ops::permute(context, x, order); });
  }

 private:
  Described describe() const override { return options_; }
  PermuteOptions options_;
};

}  // namespace

LayerPtr permute(PermuteOptions options) { return std::make_shared<PermuteLayer>(std::move(options)); }

namespace layers {

LayerPtr read_permute(ConfigMap& options) {
  options.describe(
      "The axes of a sample in another order, as Keras' Permute. `permute: {dims: [2, 1]}` makes (channels, tokens) of "
      "(tokens, channels), whose last axis a dense layer then mixes (MLP-Mixer).",
      "permute: {dims: [2, 1]}");
  return permute({.dims = options.integers({"dims",
                                            "For each axis of the output, which axis of the input it is, counted from "
                                            "1; the batch's is not among them.",
                                            "[3, 1, 2]"},
                                           {.min = 1, .max = Shape::kMaxRank - 1})});
}

}  // namespace layers
}  // namespace bantam
