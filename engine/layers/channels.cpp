// Layers without parameters that choose or reorder channels.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"
#include "bantam/engine/ops/channel_views.h"

namespace bantam {
namespace {

using namespace layers;

class ChannelSliceLayer : public BuiltInLayer {
 public:
  explicit ChannelSliceLayer(ChannelSliceOptions options) : options_(options) {}
  std::string_view kind() const override { return "channel_slice"; }
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = with_channels(kind(), inputs);
    const std::int64_t end = end_of(in);
    if (options_.begin < 0 || options_.begin >= end || end > in[-1])
      throw ShapeError(fmt::format("channel_slice: channels {} to {} of {}; expected 0 <= begin < end <= {}",
                                   options_.begin, end, in[-1], in[-1]));
    return in.with(-1, end - options_.begin);
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape> inputs) const override {
    return bind_function([begin = options_.begin, end = end_of(inputs[0])](const Context& context, Tensor x) {
      return ops::channel_slice(context, x, begin, end);
    });
  }

 private:
  Described describe() const override { return options_; }
  std::int64_t end_of(const Shape& in) const { return options_.end == 0 ? in[-1] : options_.end; }
  ChannelSliceOptions options_;
};

class ChannelShuffleLayer : public BuiltInLayer {
 public:
  explicit ChannelShuffleLayer(ChannelShuffleOptions options) : options_(options) {}
  std::string_view kind() const override { return "channel_shuffle"; }
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = with_channels(kind(), inputs);
    check_positive(kind(), "groups", options_.groups);
    if (in[-1] % options_.groups != 0)
      throw ShapeError(
          fmt::format("channel_shuffle: {} channels do not divide into {} groups", in[-1], options_.groups));
    return in;
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function([groups = options_.groups](const Context& context, Tensor x) {
      return ops::channel_shuffle(context, x, groups);
    });
  }

 private:
  Described describe() const override { return options_; }
  ChannelShuffleOptions options_;
};

}  // namespace

LayerPtr channel_slice(ChannelSliceOptions options) { return std::make_shared<ChannelSliceLayer>(options); }
LayerPtr channel_shuffle(ChannelShuffleOptions options) { return std::make_shared<ChannelShuffleLayer>(options); }

namespace layers {

LayerPtr read_channel_slice(ConfigMap& options) {
  options.describe("Some of the channels. Two of them split an image's channels, as torch.chunk does.",
                   "channel_slice: {begin: 0, end: 24}");
  ChannelSliceOptions layer;
  layer.begin = options.integer({"begin", "The first channel, counted from 0.", "24"}, {.min = 0, .max = 1 << 24}, 0);
  layer.end = options.integer({"end", "The channel after the last one; 0: as many as there are.", "48"},
                              {.min = 0, .max = 1 << 24}, 0);
  return channel_slice(layer);
}

LayerPtr read_channel_shuffle(ConfigMap& options) {
  options.describe(
      "Interleaves groups of channels, as PyTorch's ChannelShuffle: the first channel of each group, then the second "
      "of each, and so on (ShuffleNet).",
      "channel_shuffle: {groups: 2}");
  return channel_shuffle(
      {.groups = options.integer({"groups", "How many groups; they divide the channels.", "4"}, kCount, 2)});
}

}  // namespace layers
}  // namespace bantam
