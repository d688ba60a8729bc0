// Pools. Windows that reach over the padding (ceil mode) become explicit amounts: runtimes disagree about ceil_mode.
#include <algorithm>
#include <limits>

#include "bantam/engine/ops/pool2d.h"
#include "bantam/models/onnx/layer_writers.h"

namespace bantam::onnx {
namespace {

using kernels::Pool2dShape;

/// Amounts around the image with what the last windows reach over.
Padding amounts_of(const Pool2dShape& pool) {
  return {PaddingKind::explicit_, pool.pad_top, pool.pad_bottom + pool.overhang_h, pool.pad_left,
          pool.pad_right + pool.overhang_w};
}

Window2d window_of(const Pool2dShape& pool) {
  return {{pool.window_h, pool.window_w},
          {pool.stride_h, pool.stride_w},
          {pool.dilation_h, pool.dilation_w},
          amounts_of(pool)};
}

std::map<std::string, Attribute> attributes_of(const Window2d& window) {
  const auto& [kernel, stride, dilation, padding] = window;
  return {{"kernel_shape", std::vector<std::int64_t>{kernel.h, kernel.w}},
          {"strides", std::vector<std::int64_t>{stride.h, stride.w}},
          {"pads", std::vector<std::int64_t>{padding.top, padding.left, padding.bottom, padding.right}}};
}

/// ONNX Runtime refuses pools whose padding reaches the number of a window's positions; with dilation ours may.
bool fits_window(const Window2d& window) {
  const auto& [kernel, stride, dilation, padding] = window;
  return std::max(padding.top, padding.bottom) < kernel.h && std::max(padding.left, padding.right) < kernel.w;
}

std::string write_max(GraphWriter& writer, std::string x, const Pool2dShape& pool) {
  Window2d window = window_of(pool);
  if (!fits_window(window)) {
    const Padding& pad = window.padding;
    const std::string amounts = writer.integers("pads", {0, 0, pad.top, pad.left, 0, 0, pad.bottom, pad.right});
    x = writer.add("Pad", {x, amounts, writer.scalar(-std::numeric_limits<float>::infinity())});
    window.padding = Padding::symmetric(0);
  }
  std::map<std::string, Attribute> attributes = attributes_of(window);
  attributes["dilations"] = std::vector<std::int64_t>{pool.dilation_h, pool.dilation_w};
  return writer.add("MaxPool", {x}, std::move(attributes));
}

/// One axis of an average: for each window, how many of its positions count.
std::vector<double> counts(std::int64_t windows, std::int64_t positions, std::int64_t stride, std::int64_t dilation,
                           std::int64_t first, std::int64_t last) {
  std::vector<double> result(static_cast<std::size_t>(windows), 0.0);
  for (std::int64_t o = 0; o < windows; ++o)
    for (std::int64_t k = 0; k < positions; ++k) {
      const std::int64_t place = o * stride + k * dilation;
      result[static_cast<std::size_t>(o)] += place >= first && place < last ? 1 : 0;
    }
  return result;
}

/// A sum by a convolution with ones, and a factor for each place: AveragePool has no dilation before opset 19, and
/// counts what ceil mode reaches over where padding counts.
std::string write_average_as_convolution(GraphWriter& writer, const std::string& x, const Pool2dShape& pool,
                                         bool count_padding) {
  const std::vector<float> ones(static_cast<std::size_t>(pool.channels * pool.window_h * pool.window_w), 1.0f);
  const std::string weight = writer.constant("ones", {pool.channels, 1, pool.window_h, pool.window_w}, ones);
  const std::string sum = write_convolution(
      writer, {.x = x, .weight = weight, .bias = "", .window = window_of(pool), .groups = pool.channels});
  const std::int64_t top = count_padding ? 0 : pool.pad_top, left = count_padding ? 0 : pool.pad_left;
  const std::int64_t bottom = pool.pad_top + pool.in_h + (count_padding ? pool.pad_bottom : 0);
  const std::int64_t right = pool.pad_left + pool.in_w + (count_padding ? pool.pad_right : 0);
  const auto rows = counts(pool.out_h(), pool.window_h, pool.stride_h, pool.dilation_h, top, bottom);
  const auto columns = counts(pool.out_w(), pool.window_w, pool.stride_w, pool.dilation_w, left, right);
  std::vector<float> factors;
  for (const double row : rows)
    for (const double column : columns) factors.push_back(static_cast<float>(1.0 / (row * column)));
  return writer.add("Mul", {sum, writer.constant("factors", {1, 1, pool.out_h(), pool.out_w()}, factors)});
}

std::string write_average(GraphWriter& writer, const std::string& x, const Pool2dShape& pool, bool count_padding) {
  const bool dilated = pool.dilation_h > 1 || pool.dilation_w > 1;
  const bool reaches_over = pool.overhang_h > 0 || pool.overhang_w > 0;
  if (dilated || (count_padding && reaches_over)) return write_average_as_convolution(writer, x, pool, count_padding);
  std::map<std::string, Attribute> attributes = attributes_of(window_of(pool));
  attributes["count_include_pad"] = std::int64_t{count_padding ? 1 : 0};
  return writer.add("AveragePool", {x}, std::move(attributes));
}

LayerValue write_pool(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<PoolOptions>();
  const Window2d window{options.window, options.stride, options.dilation, options.padding};
  const bool maximum = layer.layer.kind() == "max_pool";
  const Pool2dShape pool = ops::pool_shape(maximum ? "max_pool" : "average_pool", layer.value().shape.prepend(1),
                                           {window, options.ceil_mode}, maximum);
  const std::string x = writer.channels_first(layer.value());
  return {.shape = layer.output,
          .first = maximum ? write_max(writer, x, pool) : write_average(writer, x, pool, options.count_padding)};
}

/// Over the tokens of (batch, tokens, channels). From opset 18 on the axes are an input.
LayerValue write_token_pool(GraphWriter& writer, const LayerInputs& layer, const char* op) {
  std::vector<std::string> inputs{writer.channels_last(layer.value())};
  std::map<std::string, Attribute> attributes{{"keepdims", std::int64_t{layer.output.rank() == 2 ? 1 : 0}}};
  if (writer.options().opset >= 18)
    inputs.push_back(writer.integers("axes", {1}));
  else
    attributes["axes"] = std::vector<std::int64_t>{1};
  return {.shape = layer.output, .last = writer.add(op, std::move(inputs), std::move(attributes))};
}

LayerValue write_global_pool(GraphWriter& writer, const LayerInputs& layer) {
  const bool maximum = layer.layer.kind() == "global_max_pool";
  if (layer.value().shape.rank() == 2) return write_token_pool(writer, layer, maximum ? "ReduceMax" : "ReduceMean");
  const char* op = maximum ? "GlobalMaxPool" : "GlobalAveragePool";
  const std::string y = writer.add(op, {writer.channels_first(layer.value())});
  if (layer.output.rank() == 3) return {.shape = layer.output, .first = y};  // keepdims
  return {.shape = layer.output, .last = writer.add("Flatten", {y}, {{"axis", std::int64_t{1}}})};
}

}  // namespace

LayerWriters pool_writers() {
  return {{"max_pool", write_pool},
          {"average_pool", write_pool},
          {"global_max_pool", write_global_pool},
          {"global_average_pool", write_global_pool}};
}

}  // namespace bantam::onnx
