// The layer that makes images larger.
#include <array>

#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"
#include "bantam/engine/ops/resize2d.h"

namespace bantam {
namespace {

using namespace layers;

class UpsampleLayer : public BuiltInLayer {
 public:
  explicit UpsampleLayer(UpsampleOptions options) : options_(options) {}
  std::string_view kind() const override { return "upsample"; }
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single_image(kind(), inputs);
    check_positive(kind(), "scale", std::min(options_.scale.h, options_.scale.w));
    const kernels::Resize2dShape shape = ops::resize2d_shape("upsample", in.prepend(1), settings(in));
    return {shape.out_h, shape.out_w, in[2]};
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape> inputs) const override {
    return bind_function([settings = settings(inputs[0])](const Context& context, Tensor x) {
      return ops::resize2d(context, x, settings);
    });
  }

 private:
  Described describe() const override { return options_; }
  ops::ResizeSettings settings(const Shape& in) const {
    return {{in[0] * options_.scale.h, in[1] * options_.scale.w}, options_.interpolation, options_.align_corners};
  }
  UpsampleOptions options_;
};

}  // namespace

LayerPtr upsample(UpsampleOptions options) { return std::make_shared<UpsampleLayer>(options); }

namespace layers {

LayerPtr read_upsample(ConfigMap& options) {
  options.describe("Larger images: `scale` times the height and width, with PyTorch's values (interpolate).",
                   "upsample: {scale: 2, interpolation: bilinear}");
  UpsampleOptions layer;
  layer.scale = read_extent(
      options, {"scale", "How many times as large: one number for both, or [height, width].", "2 | [2, 1]"}, {2, 2});
  const std::string interpolation = options.choice(
      {"interpolation", "nearest: pixels are repeated. bilinear: the four pixels around a place are blended.",
       "bilinear"},
      {"nearest", "bilinear"}, "nearest");
  if (interpolation == "bilinear") layer.interpolation = ops::Interpolation::bilinear;
  const std::array<std::string, 2> names{"nearest", "bilinear"};
  options.read_choice("interpolation", interpolation, names, [&](const std::string& name) {
    if (name == "bilinear")
      layer.align_corners = options.boolean(
          {"align_corners",
           "true: the corner pixels' centres of input and output fall together. false: their outer edges do, as in "
           "Keras and by PyTorch's default."},
          false);
  });
  return upsample(layer);
}

}  // namespace layers
}  // namespace bantam
