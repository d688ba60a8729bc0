// The convolution layer.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"
#include "bantam/engine/ops/pad2d.h"

namespace bantam {
namespace {

using namespace layers;

/// x with the window's padding around it, and the window without padding. Where there is none, x itself.
std::pair<Tensor, Window2d> padded_input(const Context& context, Tensor x, Window2d window, ops::PaddingMode mode) {
  const Padding amounts = window.resolve("conv2d", x.shape()[1], x.shape()[2]);
  if (amounts != Padding::symmetric(0)) x = ops::pad2d(context.inner(), x, amounts, mode);
  window.padding = Padding::valid();
  return {std::move(x), window};
}

class Conv2dLayer : public BuiltInLayer {
 public:
  explicit Conv2dLayer(Conv2dOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "conv2d"; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single_image(kind(), inputs);
    check_positive(kind(), "filters", options_.filters);
    check_positive(kind(), "groups", options_.groups);
    if (in[2] % options_.groups != 0 || options_.filters % options_.groups != 0)
      throw ShapeError(fmt::format("conv2d: {} input channels and {} filters do not divide into {} groups", in[2],
                                   options_.filters, options_.groups));
    if (options_.whiten) check_whitening(in[2]);
    const Extent2d out = window_output("conv2d", in, window());
    if (options_.padding_mode != ops::PaddingMode::zeros)
      (void)ops::pad2d_shape("conv2d", in.prepend(1), window().resolve("conv2d", in[0], in[1]), options_.padding_mode);
    return {out.h, out.w, options_.filters};
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const std::int64_t depth = inputs[0][2] / options_.groups, area = options_.kernel.h * options_.kernel.w;
    // A filter's inputs, and the outputs that an input feeds, which are its group's. Keras and PyTorch count the
    // outputs of all groups.
    const Fans fans{static_cast<double>(area * depth),
                    static_cast<double>(area) * static_cast<double>(options_.filters / options_.groups)};
    Parameter& weight = scope.parameter("weight", {options_.filters, options_.kernel.h, options_.kernel.w, depth},
                                        make_initializer(options_.initializer, fans));
    Parameter* bias = declare_bias(scope, options_.bias, options_.filters);
    return bind_function([&weight, bias, window = window(), mode = options_.padding_mode, groups = options_.groups,
                          act = options_.activation](const Context& context, Tensor x) {
      const auto convolve = [&](const Tensor& in, const Window2d& over) {
        if (act.kind == Activation::none) return ops::conv2d(context, in, weight.value(), over, groups, value_of(bias));
        return finish(context, ops::conv2d(context.inner(), in, weight.value(), over, groups), bias, act);
      };
      if (mode == ops::PaddingMode::zeros) return convolve(x, window);
      const auto [padded, valid] = padded_input(context, std::move(x), window, mode);
      return convolve(padded, valid);
    });
  }

  NodeTraits traits() const override {
    return {.skips_unused_output = !options_.bias && options_.activation.kind == Activation::none,
            .separates_inner_ops = true};
  }

  std::int64_t flops(std::span<const Shape> inputs) const override {
    return 2 * output_shape(inputs).elements() * options_.kernel.h * options_.kernel.w *
           (inputs[0][2] / options_.groups);
  }

 private:
  Described describe() const override { return options_; }
  Window2d window() const { return {options_.kernel, options_.stride, options_.dilation, options_.padding}; }
  void check_whitening(std::int64_t channels) const {
    const std::int64_t patch = options_.kernel.h * options_.kernel.w * channels;
    if (options_.groups != 1) throw ShapeError("conv2d: whiten needs one group of channels");
    if (options_.filters < 2 || options_.filters > 2 * patch || options_.filters % 2 != 0)
      throw ShapeError(
          fmt::format("conv2d: whiten needs 2 × {} × {} × {} = {} filters (a patch's elements, and their negatives), "
                      "or an even number below, got {}",
                      options_.kernel.h, options_.kernel.w, channels, 2 * patch, options_.filters));
    if (options_.whiten->images < 1 || !(options_.whiten->epsilon > 0))
      throw ShapeError(fmt::format("conv2d: whiten needs at least one image and an epsilon above 0, got {} and {}",
                                   options_.whiten->images, options_.whiten->epsilon));
  }
  Conv2dOptions options_;
};

}  // namespace

LayerPtr conv2d(Conv2dOptions options) { return std::make_shared<Conv2dLayer>(std::move(options)); }

namespace layers {
namespace {

WhitenOptions read_whitening(ConfigMap map) {
  WhitenOptions whiten;
  whiten.images = map.integer({"images", "The first so many training images, or all where there are fewer.", "960"},
                              {.min = 1, .max = 1 << 30}, whiten.images);
  whiten.epsilon =
      map.number({"epsilon", "Added to eigenvalues, so that patches' faint directions stay faint.", "5.0e-4"},
                 {.min = 0, .max = 1e6, .min_open = true}, whiten.epsilon);
  map.finish();
  return whiten;
}

void read_initializer(ConfigMap& options, Conv2dOptions& conv) {
  const ConfigNode node = options.node(
      {"initializer",
       "What the weights start from: a distribution, by its fan-in and fan-out, or the data; biases start at 0. "
       "he_normal suits deep networks with relu. dirac: the first filters pass the inputs on, the others are as "
       "fan_in_uniform.",
       "he_normal | {truncated_normal: 0.02} | {whiten: {images: 960, epsilon: 5.0e-4}}"},
      "glorot_uniform");
  if (!node.is_map()) {
    conv.initializer = as_initializer(node);
    return;
  }
  ConfigMap map = node.as_map();
  const auto given = map.find(
      {"whiten",
       "Of a layer that reads the images, with 2 × kernel × kernel × channels filters: eigenvectors of its patches' "
       "covariance in the first training images, each divided by the root of its eigenvalue and epsilon, and their "
       "negatives. An even number of fewer filters has those of the largest eigenvalues. Weights from a file or a "
       "checkpoint are not whitened.",
       "{images: 960, epsilon: 5.0e-4}", "a distribution by its name"});
  const std::optional<InitializerOptions> initializer = find_deviation(map);
  map.finish();
  if (initializer) conv.initializer = *initializer;
  if (given) conv.whiten = read_whitening(given->as_map());
  if (!given && !initializer && !node.is_described())
    node.fail(
        "expected the name of an initializer, {truncated_normal: deviation}, {normal: deviation} or {whiten: {images: "
        "N, epsilon: X}}");
}

}  // namespace

LayerPtr read_conv2d(ConfigMap& options) {
  options.describe("Convolution over (height, width, channels).",
                   "conv2d: {filters: 64, kernel: 3, padding: same, bias: false, activation: relu}");
  Conv2dOptions conv;
  conv.filters = options.integer(kFilters, kCount);
  read_window(options, conv);
  conv.padding_mode = read_padding_mode(options, "padding_mode");
  conv.groups = options.integer(kGroups, kCount, 1);
  conv.bias = options.boolean(kBias, true);
  conv.activation = read_activation(options);
  read_initializer(options, conv);
  return conv2d(conv);
}

}  // namespace layers
}  // namespace bantam
