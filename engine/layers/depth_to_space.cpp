// The layer that makes pixels of channels.
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class DepthToSpaceLayer : public BuiltInLayer {
 public:
  explicit DepthToSpaceLayer(DepthToSpaceOptions options) : options_(options) {}
  std::string_view kind() const override { return "depth_to_space"; }
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single_image(kind(), inputs);
    check_positive(kind(), "block", options_.block);
    const std::int64_t block = options_.block;
    if (block > in[2] || in[2] % (block * block) != 0)
      throw ShapeError(
          fmt::format("depth_to_space: {} channels do not divide into blocks of {}x{}", in[2], block, block));
    return {in[0] * block, in[1] * block, in[2] / (block * block)};
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function([options = options_](const Context& context, Tensor x) {
      return ops::depth_to_space(context, x, options.block, options.order);
    });
  }

 private:
  Described describe() const override { return options_; }
  DepthToSpaceOptions options_;
};

}  // namespace

LayerPtr depth_to_space(DepthToSpaceOptions options) { return std::make_shared<DepthToSpaceLayer>(options); }

namespace layers {

LayerPtr read_depth_to_space(ConfigMap& options) {
  options.describe(
      "Channels to pixels: (height, width, channels × block²) to (height × block, width × block, channels).",
      "depth_to_space: {block: 2}");
  DepthToSpaceOptions layer;
  layer.block = options.integer({"block", "Height and width of the block that a pixel becomes.", "3"},
                                {.min = 1, .max = 1 << 12}, 2);
  const std::string order = options.choice(
      {"order",
       "Order of the input's channels. depth_first: block row, block column, channel (TensorFlow's depth_to_space, "
       "ONNX' DCR). channel_first: channel, block row, block column (PyTorch's pixel_shuffle, ONNX' CRD).",
       "channel_first"},
      {"depth_first", "channel_first"}, "depth_first");
  if (order == "channel_first") layer.order = ops::DepthOrder::channel_first;
  return depth_to_space(layer);
}

}  // namespace layers
}  // namespace bantam
