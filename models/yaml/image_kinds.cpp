// Readers of layers that change height and width, or choose and reorder channels.
#include <array>

#include "bantam/models/yaml/kinds.h"
#include "bantam/models/yaml/layer_options.h"

namespace bantam::models {
namespace {

Extent2d read_output_padding(ConfigMap& options) {
  const auto [h, w] = options.pair({"output_padding",
                                    "Rows added at the bottom and columns at the right of the output, where several "
                                    "sizes convolve to the input's: less than the stride. One number for both, or "
                                    "[height, width].",
                                    "1 | [1, 0]"},
                                   {.min = 0, .max = 1 << 20}, {0, 0});
  return {h, w};
}

LayerPtr read_transposed_conv2d(ConfigMap& options) {
  options.describe(
      "Transposed convolution, which makes images larger: the gradient of a conv2d of the same keys with regard to its "
      "input. The output has (size - 1) × stride - padding + dilation × (kernel - 1) + output_padding + 1 rows and "
      "columns, as PyTorch's ConvTranspose2d; with padding: same, size × stride, as Keras'.",
      "transposed_conv2d: {filters: 64, kernel: 2, stride: 2}");
  TransposedConv2dOptions conv;
  conv.filters = options.integer({"filters", "Channels of the output.", "64"}, kCount);
  conv.kernel = read_extent(options, kKernel);
  conv.stride = read_extent(
      options, {"stride", "How many times as large the output is: one number for both, or [height, width].", "2"},
      {1, 1});
  conv.dilation = read_extent(options, kDilation, {1, 1});
  conv.padding = read_padding(options,
                              "Pixels cut off around the output. valid: none; same: as many as leave size × stride, as "
                              "in Keras; or their number: on all sides, as [height, width], or for each side.");
  conv.output_padding = read_output_padding(options);
  conv.groups = options.integer(kGroups, kCount, 1);
  conv.bias = options.boolean(kBias, true);
  conv.activation = read_activation(options);
  conv.initializer = read_initializer(options);
  return transposed_conv2d(conv);
}

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

}  // namespace

Kinds image_kinds() {
  return {{"transposed_conv2d", read_transposed_conv2d}, {"upsample", read_upsample},
          {"zero_padding", read_zero_padding},           {"crop", read_crop},
          {"depth_to_space", read_depth_to_space},       {"channel_slice", read_channel_slice},
          {"channel_shuffle", read_channel_shuffle}};
}

}  // namespace bantam::models
