// Pools of windows, and of whole images.
#include <algorithm>

#include <fmt/format.h>

#include "bantam/models/onnx/import/importer.h"
#include "bantam/models/onnx/import/window.h"

namespace bantam::onnx {
namespace {

void convert_pool(Importer& importer, const Node& node) {
  const int image = importer.image(node, 0);
  const ImageWindow window = read_window(node, integers(node, "kernel_shape"), importer.layers().shape(image));
  const bool mean = node.op == "AveragePool", dilated = window.dilation != std::array<std::int64_t, 2>{1, 1};
  // The standard and ONNX Runtime have outputs of other sizes then.
  if (dilated && text(node, "auto_pad", "NOTSET").starts_with("SAME"))
    fail(node, "auto_pad SAME of a window with dilations is not supported; pads are");
  ImportedLayer layer{.kind = mean ? "average_pool" : "max_pool", .inputs = {image}};
  layer.set("size", pair_text(window.kernel[0], window.kernel[1]));
  if (window.stride != window.kernel) layer.set("stride", pair_text(window.stride[0], window.stride[1]));
  if (dilated) layer.set("dilation", pair_text(window.dilation[0], window.dilation[1]));
  set_padding(layer, window);
  if (integer(node, "ceil_mode", 0) != 0) layer.set("ceil_mode", "true");
  if (mean && integer(node, "count_include_pad", 0) != 0 && layer.option("padding")) layer.set("count_padding", "true");
  importer.define_image(node, importer.add(node, std::move(layer)));
}

/// Over all axes of images or tokens but the channels, which become (batch, channels), or keep axes of one value.
void pool_axes(Importer& importer, const Node& node, const std::vector<bool>& reduced, bool keep) {
  const View& view = importer.value(node, 0);
  std::vector<std::size_t> order;
  std::optional<std::size_t> channels;
  for (std::size_t axis = 0; axis < view.axes.size(); ++axis) {
    if (reduced[axis])
      order.push_back(axis);
    else if (channels)
      fail(node, "reduces one axis of an image; expected both, height and width");
    else
      channels = axis;
  }
  if (!channels || order.empty() || view.axes.size() > 3)
    fail(node, "expected to reduce the height and width of images, their channels, or tokens");
  order.push_back(*channels);
  const Shape& shape = importer.layers().shape(view.layer);
  const bool fits =
      is_in_order(view, order) && (shape.rank() == 2 || shape.rank() == 3) && shape[-1] == view.extent(*channels);
  const int positions = fits ? view.layer : importer.in_order(node, view, order).layer;
  const bool mean = node.op == "GlobalAveragePool" || node.op == "ReduceMean";
  const int pool =
      importer.add(node, {.kind = mean ? "global_average_pool" : "global_max_pool", .inputs = {positions}});
  View result = view_of(pool, importer.layers().shape(pool), std::vector<int>{0});
  const std::vector<int> last = result.axes[0];
  result.axes.clear();
  for (std::size_t axis = 0; axis < reduced.size(); ++axis)
    if (!reduced[axis] || keep) result.axes.push_back(reduced[axis] ? std::vector<int>{} : last);
  importer.define(node, std::move(result));
}

/// The mean or the largest value of each pixel's channels: pools of one row of a pixel's channels, seen as an image.
void pool_channels(Importer& importer, const Node& node, bool keep) {
  const int image = importer.image(node, 0);
  const Shape shape = importer.layers().shape(image);
  const auto add = [&](std::string kind, std::vector<std::pair<std::string, std::string>> options, int input) {
    const bool pools = kind != "reshape";
    return importer.add(
        node,
        {.kind = std::move(kind), .options = std::move(options), .inputs = {input}, .name = pools ? "" : "reshape"});
  };
  importer.share(image);
  const int rows = add("reshape", {{"shape", fmt::format("[{}, {}, 1]", shape[0] * shape[1], shape[2])}}, image);
  const int pooled =
      add(node.op == "ReduceMean" ? "average_pool" : "max_pool",
          {{"size", fmt::format("[1, {}]", shape[2])}, {"stride", fmt::format("[1, {}]", shape[2])}}, rows);
  const int pixels = add("reshape", {{"shape", fmt::format("[{}, {}, 1]", shape[0], shape[1])}}, pooled);
  View result = image_view(pixels, importer.layers().shape(pixels));
  if (!keep) result.axes.erase(result.axes.begin());
  importer.define(node, std::move(result));
}

void convert_global_pool(Importer& importer, const Node& node) {
  const std::size_t axes = importer.value(node, 0).axes.size();
  if (axes != 3) fail(node, fmt::format("a value of {} axes; expected 4: (batch, channels, height, width)", axes + 1));
  pool_axes(importer, node, {false, true, true}, true);
}

void convert_reduction(Importer& importer, const Node& node) {
  const View& view = importer.value(node, 0);
  std::vector<std::int64_t> axes = integers(node, "axes");
  if (const Tensor* tensor = importer.constant(node, 1)) axes = tensor->as_integers();
  std::vector<bool> reduced(view.axes.size());
  for (const std::int64_t given : axes) {
    const std::size_t axis = checked_axis(node, given, view.axes.size() + 1);
    if (axis == 0) fail(node, "reduces the batch");
    reduced[axis - 1] = true;
  }
  const bool keep = integer(node, "keepdims", 1) != 0;
  if (reduced == std::vector<bool>{true, false, false}) return pool_channels(importer, node, keep);
  pool_axes(importer, node, reduced, keep);
}

constexpr std::pair<std::string_view, Converter> kPoolConverters[] = {
    {"MaxPool", convert_pool},
    {"AveragePool", convert_pool},
    {"GlobalAveragePool", convert_global_pool},
    {"GlobalMaxPool", convert_global_pool},
    {"ReduceMean", convert_reduction},
    {"ReduceMax", convert_reduction},
};

}  // namespace

Converters pool_converters() { return kPoolConverters; }

}  // namespace bantam::onnx
