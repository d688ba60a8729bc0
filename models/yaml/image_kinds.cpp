// Readers of layers that change height and width.
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

}  // namespace

Kinds image_kinds() { return {{"transposed_conv2d", read_transposed_conv2d}}; }

}  // namespace bantam::models
