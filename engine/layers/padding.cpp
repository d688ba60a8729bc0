// Layers that widen or cut an image's border.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"
#include "bantam/engine/ops/pad2d.h"

namespace bantam {
namespace {

using namespace layers;

/// Padding, or cropping where `crops`.
class PadLayer : public BuiltInLayer {
 public:
  PadLayer(PadOptions options, bool crops) : options_(options), crops_(crops) {}
  std::string_view kind() const override { return crops_ ? "crop" : "zero_padding"; }
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single_image(kind(), inputs);
    const kernels::Pad2dShape shape = ops::pad2d_shape(kind().data(), in.prepend(1), amounts(), options_.mode);
    return {shape.out_h(), shape.out_w(), in[2]};
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function([amounts = amounts(), mode = options_.mode](const Context& context, Tensor x) {
      return ops::pad2d(context, x, amounts, mode);
    });
  }

 private:
  Described describe() const override { return options_; }
  Padding amounts() const {
    const auto& [kind, top, bottom, left, right] = options_.amounts;
    return crops_ ? Padding{kind, -top, -bottom, -left, -right} : options_.amounts;
  }
  PadOptions options_;
  bool crops_;
};

}  // namespace

LayerPtr zero_padding(PadOptions options) { return std::make_shared<PadLayer>(options, false); }
LayerPtr crop(PadOptions options) { return std::make_shared<PadLayer>(options, true); }

namespace layers {

LayerPtr read_zero_padding(ConfigMap& options) {
  options.describe("Pixels around the image: zeros, or what `mode` says.",
                   "zero_padding: {padding: {bottom: 1, right: 1}}");
  PadOptions layer;
  layer.amounts = read_amounts(
      options, {"padding", "How many pixels are added: on all sides, as [height, width], or for each side.",
                "1 | [1, 2] | {top: 0, bottom: 1, left: 0, right: 1}"});
  layer.mode = read_padding_mode(options, "mode");
  return zero_padding(layer);
}

LayerPtr read_crop(ConfigMap& options) {
  options.describe("The image without pixels at its sides.", "crop: {cropping: 2}");
  return crop(
      {.amounts = read_amounts(options, {"cropping",
                                         "How many pixels are cut off: on all sides, as [height, width], or for each "
                                         "side.",
                                         "1 | [1, 2] | {top: 0, bottom: 1, left: 0, right: 1}"})});
}

}  // namespace layers
}  // namespace bantam
