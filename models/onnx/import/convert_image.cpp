// Layers that change the height and width of images, and concatenation of channels.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "bantam/models/onnx/import/importer.h"
#include "bantam/models/onnx/import/window.h"

namespace bantam::onnx {
namespace {

using Amounts = std::array<std::int64_t, 4>;  // top, left, bottom, right

constexpr std::int64_t kMost = std::int64_t{1} << 20;

/// By axis of (batch, channels, height, width), what is added before and after it.
std::vector<std::int64_t> pads_of(Importer& importer, const Node& node) {
  std::vector<std::int64_t> pads = integers(node, "pads");
  if (const Tensor* tensor = importer.constant(node, 1)) pads = tensor->as_integers();
  if (!importer.has(node, 3)) return pads;
  const std::vector<std::int64_t> axes = importer.constant(node, 3)->as_integers();
  if (pads.size() != 2 * axes.size()) fail(node, "pads and axes do not fit");
  std::vector<std::int64_t> all(8);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = checked_axis(node, axes[i], 4);
    all[axis] = pads[i];
    all[axis + 4] = pads[i + axes.size()];
  }
  return all;
}

void add_amounts(Importer& importer, const Node& node, ImportedLayer layer, const Amounts& amounts) {
  if (amounts == Amounts{}) return importer.define(node, importer.value(node, 0));
  layer.inputs = {importer.image(node, 0)};
  set_amounts(layer, layer.kind == "crop" ? "cropping" : "padding", amounts);
  importer.define_image(node, importer.add(node, std::move(layer)));
}

void convert_pad(Importer& importer, const Node& node) {
  const std::string mode = text(node, "mode", "constant");
  float fill = number(node, "value", 0);
  if (importer.has(node, 2)) {
    const Tensor& value = importer.needed_constant(node, 2, "the value");
    fill = value.elements() == 1 ? value.as_floats()[0] : 1;
  }
  if (mode == "constant" && fill != 0) fail(node, fmt::format("pads with {}; expected 0", fill));
  const std::vector<std::int64_t> pads = pads_of(importer, node);
  const bool of_images = importer.value(node, 0).axes.size() == 3 && pads.size() == 8;
  if (!of_images || pads[0] != 0 || pads[1] != 0 || pads[4] != 0 || pads[5] != 0)
    fail(node, "expected pads of the height and width of images alone");
  const Amounts amounts{pads[2], pads[3], pads[6], pads[7]};
  const bool adds = std::ranges::all_of(amounts, [](std::int64_t pad) { return pad >= 0 && pad <= kMost; });
  const bool cuts = std::ranges::all_of(amounts, [](std::int64_t pad) { return pad <= 0 && pad >= -kMost; });
  if (!adds && !cuts) fail(node, "adds pixels at one side and cuts them off at another");
  if (!adds) return add_amounts(importer, node, {.kind = "crop"}, {-pads[2], -pads[3], -pads[6], -pads[7]});
  constexpr std::pair<std::string_view, std::string_view> kModes[] = {
      {"constant", "zeros"}, {"reflect", "reflect"}, {"edge", "replicate"}, {"wrap", "circular"}};
  const auto* known = std::ranges::find(kModes, mode, &std::pair<std::string_view, std::string_view>::first);
  if (known == std::end(kModes)) fail(node, fmt::format("mode '{}'; expected constant, reflect, edge or wrap", mode));
  ImportedLayer layer{.kind = "zero_padding"};
  if (known->second != "zeros") layer.set("mode", std::string(known->second));
  add_amounts(importer, node, std::move(layer), amounts);
}

/// How many times as large axis `axis` of the image becomes, of scales or sizes.
std::int64_t whole_scale(const Node& node, double scale) {
  if (!(scale >= 1 && scale <= 1024) || scale != std::floor(scale))
    fail(node, fmt::format("a scale of {}; expected a whole number from 1 on", scale));
  return static_cast<std::int64_t>(scale);
}

std::array<std::int64_t, 2> scales_of(Importer& importer, const Node& node, const Shape& image) {
  const std::size_t at = node.op == "Upsample" || importer.opset() < 11 ? 1 : 2;
  std::vector<double> scales;
  if (importer.has(node, 3)) {
    const std::vector<std::int64_t> sizes = importer.needed_constant(node, 3, "the sizes").as_integers();
    if (sizes.size() != 4 || sizes[1] != image[2]) fail(node, "sizes that are not those of images");
    scales = {1, 1, static_cast<double>(sizes[2]) / static_cast<double>(image[0]),
              static_cast<double>(sizes[3]) / static_cast<double>(image[1])};
  } else {
    const std::vector<float> values = importer.needed_constant(node, at, "the scales").as_floats();
    scales.assign(values.begin(), values.end());
  }
  if (scales.size() != 4 || scales[0] != 1 || scales[1] != 1)
    fail(node, "expected four scales, of which the batch's and the channels' are 1");
  return {whole_scale(node, scales[2]), whole_scale(node, scales[3])};
}

/// Whether nearest neighbours of whole scales are each pixel repeated.
bool repeats_pixels(const Node& node, const std::string& coordinates) {
  const std::string rounding = text(node, "nearest_mode", "round_prefer_floor");
  if (node.op == "Upsample" || (coordinates == "asymmetric" && rounding == "floor")) return true;
  const bool centred = coordinates == "half_pixel" || coordinates == "pytorch_half_pixel";
  return centred && (rounding == "round_prefer_floor" || rounding == "round_prefer_ceil");
}

/// Throws for attributes by which scales or sizes are not those of (batch, channels, height, width).
void check_resize_attributes(const Node& node) {
  const std::vector<std::int64_t> axes = integers(node, "axes", {0, 1, 2, 3});
  if (axes != std::vector<std::int64_t>{0, 1, 2, 3}) fail(node, "attribute 'axes': expected 0, 1, 2 and 3");
  if (const std::string policy = text(node, "keep_aspect_ratio_policy", "stretch"); policy != "stretch")
    fail(node, fmt::format("keep_aspect_ratio_policy '{}'; expected stretch", policy));
}

void convert_resize(Importer& importer, const Node& node) {
  check_resize_attributes(node);
  const int image = importer.image(node, 0);
  const auto [h, w] = scales_of(importer, node, importer.layers().shape(image));
  if (h == 1 && w == 1) return importer.define_image(node, image);
  const std::string mode = text(node, "mode", "nearest");
  const bool old = node.op == "Upsample" || importer.opset() < 11;
  const std::string coordinates = text(node, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  ImportedLayer layer{.kind = "upsample", .options = {{"scale", pair_text(h, w)}}, .inputs = {image}};
  if (mode == "nearest") {
    if (!old && !repeats_pixels(node, coordinates))
      fail(node, fmt::format("nearest pixels by {} and {}; expected asymmetric and floor", coordinates,
                             text(node, "nearest_mode", "round_prefer_floor")));
  } else if (mode == "linear" &&
             (coordinates == "align_corners" || coordinates == "half_pixel" || coordinates == "pytorch_half_pixel")) {
    layer.set("interpolation", "bilinear");
    if (coordinates == "align_corners") layer.set("align_corners", "true");
  } else {
    fail(node,
         fmt::format("mode {} by {}; expected nearest, or linear by half_pixel or align_corners", mode, coordinates));
  }
  importer.define_image(node, importer.add(node, std::move(layer)));
}

void convert_depth_to_space(Importer& importer, const Node& node) {
  const std::string mode = text(node, "mode", "DCR");
  if (mode != "DCR" && mode != "CRD") fail(node, fmt::format("mode '{}'; expected DCR or CRD", mode));
  ImportedLayer layer{.kind = "depth_to_space", .inputs = {importer.image(node, 0)}};
  layer.set("block", fmt::format("{}", integer(node, "blocksize", 0)));
  if (mode == "CRD") layer.set("order", "channel_first");
  importer.define_image(node, importer.add(node, std::move(layer)));
}

/// How many rows (axis 2) or columns (3) the crop `layer` of `image` keeps, where those are the first or the last ones.
std::optional<std::int64_t> kept_end(const LayerList& layers, int layer, int image, std::size_t axis, bool last) {
  if (layer == kInput || layers[layer].kind != "crop" || layers[layer].inputs[0] != image) return std::nullopt;
  const Shape &all = layers.shape(image), &kept = layers.shape(layer);
  const int along = static_cast<int>(axis) - 2;
  std::array<std::int64_t, 4> cut{};
  cut[axis - (last ? 2 : 0)] = all[along] - kept[along];
  ImportedLayer expected{.kind = "crop"};
  set_amounts(expected, "cropping", cut);
  return expected.options == layers[layer].options ? std::optional(kept[along]) : std::nullopt;
}

/// An image between its last rows and its first ones, or columns: circular padding, as exporters write it. False where
/// the node joins other values.
bool convert_circular(Importer& importer, const Node& node, std::size_t axis) {
  const std::size_t count = node.inputs.size();
  for (std::size_t whole = 0; whole < count && count <= 3; ++whole) {
    const int image = importer.image(node, whole);
    Amounts added{};
    bool fits = true;
    for (std::size_t i = 0; i < count; ++i) {
      if (i == whole) continue;
      const bool before = i + 1 == whole;
      const auto kept = kept_end(importer.layers(), importer.image(node, i), image, axis, before);
      fits = fits && kept && (before || i == whole + 1);
      added[axis - (before ? 2 : 0)] = kept.value_or(0);
    }
    if (!fits) continue;
    ImportedLayer layer{.kind = "zero_padding", .options = {{"mode", "circular"}}, .inputs = {image}};
    set_amounts(layer, "padding", added);
    importer.define_image(node, importer.add(node, std::move(layer)));
    return true;
  }
  return false;
}

/// Whether all inputs are (batch, channels, height, width) of layers' images.
bool are_images(const Importer& importer, const Node& node) {
  constexpr std::size_t kOrder[] = {1, 2, 0};
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (importer.value(node, i).axes.size() != 3 || !is_in_order(importer.value(node, i), kOrder)) return false;
  return true;
}

/// Tokens of the model's own, which are constants, the same for each sample, and then a value (batch, tokens,
/// channels).
void convert_class_token(Importer& importer, const Node& node) {
  const std::size_t last = node.inputs.size() - 1;
  const View& value = importer.value(node, last);
  if (value.axes.size() != 2 || checked_axis(node, integer(node, "axis", 1), 3) != 1)
    fail(node,
         "joins constants with what the network computes; expected tokens before tokens (batch, tokens, "
         "channels), along axis 1");
  const std::int64_t channels = value.extent(1);
  std::vector<float> tokens;
  for (std::size_t i = 0; i < last; ++i) {
    const Tensor& tensor = importer.needed_constant(node, i, "tokens");
    const std::vector<float> values = tensor.as_floats();
    if (tensor.dims.size() != 3 || tensor.dims[2] != channels || values.empty())
      fail(node, fmt::format("input {} is no tokens of {} channels", i, channels));
    const auto sample = static_cast<std::ptrdiff_t>(tensor.dims[1] * channels);
    for (auto other = values.begin(); other != values.end(); other += sample)
      if (!std::equal(values.begin(), values.begin() + sample, other))
        fail(node, fmt::format("input {} has tokens that differ by sample", i));
    tokens.insert(tokens.end(), values.begin(), values.begin() + sample);
  }
  const std::int64_t count = std::ssize(tokens) / channels;
  constexpr std::size_t kOrder[] = {0, 1};
  const Shape& shape = importer.layers().shape(value.layer);
  const bool fits = is_in_order(value, kOrder) && (shape.rank() == 2 || shape.rank() == 3) && shape[-1] == channels;
  ImportedLayer layer{.kind = "class_token",
                      .inputs = {fits ? value.layer : importer.in_order(node, value, kOrder).layer},
                      .name = "class_token"};
  if (count != 1) layer.set("count", fmt::format("{}", count));
  layer.tensors.emplace("token", host_tensor({count, channels}, tokens));
  const int joined = importer.add(node, std::move(layer));
  importer.define(node, view_of(joined, importer.layers().shape(joined), std::vector<int>{0, 1}));
}

/// Along the last axis of the layers' outputs, which the node's axis must be.
void convert_concat(Importer& importer, const Node& node) {
  if (node.inputs.size() == 1) return importer.define(node, importer.value(node, 0));
  if (importer.is_constant(node, 0)) return convert_class_token(importer, node);
  const std::size_t rank = importer.value(node, 0).axes.size() + 1;
  const std::size_t axis = checked_axis(node, integer(node, "axis", 1), rank);
  if (rank == 4 && axis > 1 && are_images(importer, node) && convert_circular(importer, node, axis)) return;
  std::vector<int> layers;
  std::vector<int> order{0};
  if (rank == 2 && axis == 1) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const View view = importer.vector(node, i);
      constexpr std::size_t kOne[] = {0};
      if (!is_in_order(view, kOne)) fail(node, "joins flattened images, whose values lie in another order here");
      layers.push_back(view.layer);
    }
  } else if (rank == 4 && axis == 1) {
    order = {2, 0, 1};
    for (std::size_t i = 0; i < node.inputs.size(); ++i) layers.push_back(importer.image(node, i));
  } else if (rank == 4 && axis == 3) {
    order = {0, 1, 2};
    constexpr std::size_t kOrder[] = {0, 1, 2};
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const View& view = importer.value(node, i);
      const Shape& shape = importer.layers().shape(view.layer);
      if (view.axes.size() != 3 || !is_in_order(view, kOrder) || shape.rank() != 3 ||
          shape != Shape{view.extent(0), view.extent(1), view.extent(2)})
        fail(node, "joins images along their width, or that were reshaped; expected the channels");
      layers.push_back(view.layer);
    }
  } else if (rank == 3 && axis > 0) {
    const std::size_t sequence[] = {2 - axis, axis - 1};
    order = {static_cast<int>(2 - axis), static_cast<int>(axis - 1)};
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      layers.push_back(importer.in_order(node, importer.value(node, i), sequence).layer);
  } else {
    fail(node, fmt::format("along axis {} of {}; expected that of the channels or features", axis, rank));
  }
  const int joined = importer.add(node, {.kind = "concat", .inputs = layers});
  importer.define(node, view_of(joined, importer.layers().shape(joined), order));
}

constexpr std::pair<std::string_view, Converter> kImageConverters[] = {
    {"Pad", convert_pad},
    {"Resize", convert_resize},
    {"Upsample", convert_resize},
    {"Concat", convert_concat},
    {"DepthToSpace", convert_depth_to_space},
};

}  // namespace

Converters image_converters() { return kImageConverters; }

}  // namespace bantam::onnx
