// Layers without parameters that change height and width: upsampling, padding, cropping, depth to space.
#include "bantam/engine/layers/support.h"
#include "bantam/engine/ops/pad2d.h"
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

LayerPtr upsample(UpsampleOptions options) { return std::make_shared<UpsampleLayer>(options); }
LayerPtr zero_padding(PadOptions options) { return std::make_shared<PadLayer>(options, false); }
LayerPtr crop(PadOptions options) { return std::make_shared<PadLayer>(options, true); }
LayerPtr depth_to_space(DepthToSpaceOptions options) { return std::make_shared<DepthToSpaceLayer>(options); }

}  // namespace bantam
