// The layer that keeps a part of one axis. It has no kernels of its own: x is seen as rows, whose columns are the axis
// that is cut and those after it.
#include <algorithm>

#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"
#include "bantam/engine/ops/channel_views.h"

namespace bantam {
namespace {

using namespace layers;

/// The `count` positions of an axis of `extent`, `step` apart from `start` on; `inner` elements belong to each.
struct Cut {
  int axis = 0;
  std::int64_t extent = 1, inner = 1, start = 0, count = 1, step = 1;

  Tensor of(const Context& context, const Tensor& x) const {
    const std::int64_t rows = x.elements() / (extent * inner);
    if (step == 1) {
      const Tensor flat = ops::reshape(context.inner(), x, {rows, extent * inner});
      return ops::channel_slice(context, flat, start * inner, (start + count) * inner);
    }
    // x is an image whose height padding cuts and fills up to whole steps. The first position of each is kept.
    const Padding whole{PaddingKind::explicit_, -start, start + count * step - extent, 0, 0};
    Tensor y = ops::reshape(context.inner(), x, {rows, extent, 1, inner});
    y = ops::pad2d(context.inner(), y, whole);
    y = ops::reshape(context.inner(), y, {rows * count, step * inner});
    return ops::channel_slice(context, y, 0, inner);
  }
};

/// A position as NumPy counts it: from the end where it is negative, and within the axis.
std::int64_t position(std::int64_t given, std::int64_t extent) {
  return std::clamp<std::int64_t>(given < 0 ? given + extent : given, 0, extent);
}

class SliceLayer : public BuiltInLayer {
 public:
  explicit SliceLayer(SliceOptions options) : options_(options) {}
  std::string_view kind() const override { return "slice"; }
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Cut cut = cut_of(single(kind(), inputs));
    return inputs[0].with(cut.axis, cut.count);
  }

  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape> inputs) const override {
    return bind_function(
        [cut = cut_of(inputs[0]), out = output_shape(inputs)](const Context& context, const Tensor& x) {
          return ops::reshape(context, cut.of(context, x), out.prepend(x.shape()[0]));
        });
  }

 private:
  Described describe() const override { return options_; }

  Cut cut_of(const Shape& in) const {
    const auto& [axis, start, stop, step] = options_;
    if (axis < -in.rank() || axis >= in.rank())
      throw ShapeError(fmt::format("slice: axis {} of an input {}", axis, to_string(in)));
    check_positive(kind(), "step", step);
    Cut cut{.axis = axis < 0 ? axis + in.rank() : axis, .extent = in[axis], .step = step};
    cut.start = position(start, cut.extent);
    const std::int64_t end = position(stop.value_or(cut.extent), cut.extent);
    cut.count = (end - cut.start + step - 1) / step;
    if (cut.count < 1)
      throw ShapeError(
          fmt::format("slice: positions {} to {} of axis {} of {} are none", cut.start, end, axis, to_string(in)));
    if (cut.count == 1) cut.step = 1;
    for (int after = cut.axis + 1; after < in.rank(); ++after) cut.inner *= in[after];
    return cut;
  }

  SliceOptions options_;
};

}  // namespace

LayerPtr slice(SliceOptions options) { return std::make_shared<SliceLayer>(options); }

namespace layers {

LayerPtr read_slice(ConfigMap& options) {
  options.describe(
      "A part of one axis, as NumPy's x[start:stop:step] and ONNX' Slice. Of a sequence of (tokens, features) "
      "`slice: {axis: 0, stop: 1}` is the first token, the class token of a vision transformer.",
      "slice: {axis: 0, start: 0, stop: 1}");
  constexpr IntegerRange kPosition{.min = -(std::int64_t{1} << 40), .max = std::int64_t{1} << 40};
  SliceOptions layer;
  layer.axis = static_cast<int>(options.integer(
      {"axis",
       "Axis of a sample's shape, counted from 0: of an image 0 is the height, 2 the channels. Negative: from "
       "the end, -1 the last one.",
       "-1"},
      {.min = 1 - Shape::kMaxRank, .max = Shape::kMaxRank - 2}, 0));
  layer.start = options.integer({"start", "The first position, counted from 0; negative: from the axis' end.", "-1"},
                                kPosition, 0);
  if (const auto stop = options.find({"stop",
                                      "The position after the last one; negative: from the axis' end. Positions "
                                      "outside the axis are none.",
                                      "1", "the axis' end"}))
    layer.stop = stop->as_integer(kPosition);
  layer.step = options.integer({"step", "Positions from one that is kept to the next.", "2"},
                               {.min = 1, .max = std::int64_t{1} << 40}, 1);
  return slice(layer);
}

}  // namespace layers
}  // namespace bantam
