// Pooling layers.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"
#include "bantam/engine/ops/pool2d.h"

namespace bantam {
namespace {

using namespace layers;

class PoolLayer : public BuiltInLayer {
 public:
  PoolLayer(PoolOptions options, bool maximum) : options_(options), maximum_(maximum) {}
  std::string_view kind() const override { return maximum_ ? "max_pool" : "average_pool"; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single_image(kind(), inputs);
    const kernels::Pool2dShape shape =
        ops::pool_shape(kind().data(), in.prepend(1), {window(), options_.ceil_mode}, maximum_);
    return {shape.out_h(), shape.out_w(), in[2]};
  }

  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    if (maximum_)
      return bind_function([window = window(), ceil = options_.ceil_mode](const Context& context, Tensor x) {
        return ops::max_pool2d(context, x, window, ceil);
      });
    return bind_function(
        [window = window(), count = options_.count_padding, ceil = options_.ceil_mode](
            const Context& context, Tensor x) { return ops::avg_pool2d(context, x, window, count, ceil); });
  }

 private:
  Described describe() const override { return options_; }
  Window2d window() const { return {options_.window, options_.stride, options_.dilation, options_.padding}; }
  PoolOptions options_;
  bool maximum_;
};

class GlobalPoolLayer : public BuiltInLayer {
 public:
  GlobalPoolLayer(GlobalPoolOptions options, bool maximum) : options_(options), maximum_(maximum) {}
  std::string_view kind() const override { return maximum_ ? "global_max_pool" : "global_average_pool"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape in = image_of(single(kind(), inputs));
    const Window2d whole{.kernel = {in[0], in[1]}, .stride = {in[0], in[1]}};
    (void)ops::pool_shape(kind().data(), in.prepend(1), {whole}, maximum_);
    if (!options_.keepdims) return {in[2]};
    return inputs[0].rank() == 3 ? Shape{1, 1, in[2]} : Shape{1, in[2]};
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape> inputs) const override {
    return bind_function([maximum = maximum_, image = image_of(inputs[0]), out = output_shape(inputs)](
                             const Context& context, const Tensor& x) {
      const Shape whole = image.prepend(x.shape()[0]);
      const Tensor from = x.shape() == whole ? x : ops::reshape(context.inner(), x, whole);
      const Tensor y = maximum ? ops::global_max_pool2d(context, from) : ops::global_avg_pool2d(context, from);
      return out.rank() == 1 ? y : ops::reshape(context, y, out.prepend(x.shape()[0]));
    });
  }

 private:
  /// Tokens are an image of one column.
  Shape image_of(const Shape& in) const {
    if (in.rank() == 2) return {in[0], 1, in[1]};
    if (in.rank() == 3) return in;
    throw ShapeError(fmt::format("{}: expected an input (height, width, channels) or (tokens, channels), got {}",
                                 kind(), to_string(in)));
  }
  GlobalPoolOptions options_;
  bool maximum_;
};

}  // namespace

LayerPtr max_pool(PoolOptions options) { return std::make_shared<PoolLayer>(options, true); }
LayerPtr average_pool(PoolOptions options) { return std::make_shared<PoolLayer>(options, false); }
LayerPtr global_average_pool(GlobalPoolOptions options) { return std::make_shared<GlobalPoolLayer>(options, false); }
LayerPtr global_max_pool(GlobalPoolOptions options) { return std::make_shared<GlobalPoolLayer>(options, true); }

namespace layers {
namespace {

PoolOptions read_pool(ConfigMap& options) {
  PoolOptions pool;
  pool.window = read_extent(
      options, {"size", "Extents of the window: one number for both, or [height, width].", "3 | [2, 4]"}, {2, 2});
  pool.stride =
      read_extent(options, {kStride.name, kStride.meaning, kStride.example, "the window's `size`"}, pool.window);
  pool.dilation = read_extent(
      options, {"dilation", "Step between the window's values: one number for both, or [height, width].", "2"}, {1, 1});
  pool.padding = read_padding(options);
  pool.ceil_mode = options.boolean(
      {"ceil_mode",
       "true: the last windows may end outside the padded image, where they begin inside the image or the padding "
       "before it, as PyTorch's. false: values that fill no window are left out."},
      false);
  return pool;
}

GlobalPoolOptions read_global_pool(ConfigMap& options) {
  return {
      .keepdims = options.boolean(
          {"keepdims",
           "true: (1, 1, channels), to be multiplied with an image or convolved, or (1, channels). false: (channels)."},
          false)};
}

}  // namespace

LayerPtr read_max_pool(ConfigMap& options) {
  options.describe("The largest value of each window, channel by channel.", "max_pool: {size: 2}");
  return max_pool(read_pool(options));
}

LayerPtr read_average_pool(ConfigMap& options) {
  options.describe("The mean of each window, channel by channel.", "average_pool: {size: 2}");
  PoolOptions pool = read_pool(options);
  pool.count_padding = options.boolean(
      {"count_padding",
       "true: padding counts as zeros in the mean, PyTorch's default (count_include_pad). false: only the image's "
       "own values count, as in Keras."},
      false);
  return average_pool(pool);
}

LayerPtr read_global_average_pool(ConfigMap& options) {
  options.describe("The mean of each channel: (height, width, channels) or (tokens, channels) to (channels).",
                   "global_average_pool");
  return global_average_pool(read_global_pool(options));
}

LayerPtr read_global_max_pool(ConfigMap& options) {
  options.describe("The largest value of each channel: (height, width, channels) or (tokens, channels) to (channels).",
                   "global_max_pool");
  return global_max_pool(read_global_pool(options));
}

}  // namespace layers
}  // namespace bantam
