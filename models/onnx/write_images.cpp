// Layers that change height and width, or choose and reorder channels.
#include <algorithm>
#include <numeric>
#include <utility>

#include "bantam/models/onnx/layer_writers.h"

namespace bantam::onnx {
namespace {

/// Rows (axis 2) or columns (axis 3) from `begin` to before `end`.
std::string slice(GraphWriter& writer, const std::string& x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  return writer.add("Slice", {x, writer.integers("starts", {begin}), writer.integers("ends", {end}),
                              writer.integers("axes", {axis})});
}

/// The other end of the image before and after it along an axis of `size`: Pad has that mode from opset 19 on.
std::string wrapped(GraphWriter& writer, const std::string& x, std::int64_t axis, std::int64_t size,
                    std::int64_t before, std::int64_t after) {
  if (before == 0 && after == 0) return x;
  std::vector<std::string> parts{x};
  if (before > 0) parts.insert(parts.begin(), slice(writer, x, axis, size - before, size));
  if (after > 0) parts.push_back(slice(writer, x, axis, 0, after));
  return writer.add("Concat", parts, {{"axis", axis}});
}

std::string cropped(GraphWriter& writer, std::string x, const Shape& image, const Padding& crop) {
  if (crop.top > 0 || crop.bottom > 0) x = slice(writer, x, 2, crop.top, image[0] - crop.bottom);
  if (crop.left > 0 || crop.right > 0) x = slice(writer, x, 3, crop.left, image[1] - crop.right);
  return x;
}

/// Each amount, or 0 where it is negative; `sign` -1: the negative ones, without their sign.
Padding positive(const Padding& amounts, std::int64_t sign) {
  const auto part = [sign](std::int64_t amount) { return std::max<std::int64_t>(sign * amount, 0); };
  return {PaddingKind::explicit_, part(amounts.top), part(amounts.bottom), part(amounts.left), part(amounts.right)};
}

LayerValue write_padding_layer(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<PadOptions>();
  Padding amounts = options.amounts;
  if (layer.layer.kind() == "crop")
    amounts = {amounts.kind, -amounts.top, -amounts.bottom, -amounts.left, -amounts.right};
  const std::string x = writer.channels_first(layer.value());
  return {.shape = layer.output, .first = write_padding(writer, x, layer.value().shape, amounts, options.mode)};
}

LayerValue write_upsample(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<UpsampleOptions>();
  const float scales[] = {1.0f, 1.0f, static_cast<float>(options.scale.h), static_cast<float>(options.scale.w)};
  const std::vector<std::string> inputs{writer.channels_first(layer.value()), "",
                                        writer.float32("scales", {4}, scales)};
  std::map<std::string, Attribute> attributes;
  if (options.interpolation == ops::Interpolation::nearest)
    attributes = {{"mode", "nearest"}, {"coordinate_transformation_mode", "asymmetric"}, {"nearest_mode", "floor"}};
  else
    attributes = {{"mode", "linear"},
                  {"coordinate_transformation_mode", options.align_corners ? "align_corners" : "half_pixel"}};
  return {.shape = layer.output, .first = writer.add("Resize", inputs, std::move(attributes))};
}

LayerValue write_depth_to_space(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<DepthToSpaceOptions>();
  const char* mode = options.order == ops::DepthOrder::depth_first ? "DCR" : "CRD";
  return {.shape = layer.output,
          .first = writer.add("DepthToSpace", {writer.channels_first(layer.value())},
                              {{"blocksize", options.block}, {"mode", mode}})};
}

/// Writes a layer in the order that is there: (C, H, W), which is `first` for `write`, or ours.
template <class Write>
LayerValue in_its_order(GraphWriter& writer, const LayerInputs& layer, const Write& write) {
  LayerValue& x = layer.value();
  const bool first = x.order() == Order::channels_first && x.shape.rank() == 3;
  const std::string input = first ? x.first : writer.channels_last(x);
  LayerValue y{.shape = layer.output};
  (first ? y.first : y.last) = write(input, first);
  return y;
}

/// The channels' axis is 1, or the last one.
LayerValue write_channel_slice(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<ChannelSliceOptions>();
  return in_its_order(writer, layer, [&](const std::string& x, bool first) {
    const std::int64_t axis = first ? 1 : layer.value().shape.rank();
    return slice(writer, x, axis, options.begin, options.begin + layer.output[-1]);
  });
}

LayerValue write_slice(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<SliceOptions>();
  const Shape& shape = layer.value().shape;
  const int axis = options.axis < 0 ? options.axis + shape.rank() : options.axis;
  return in_its_order(writer, layer, [&](const std::string& x, bool first) {
    return writer.add(
        "Slice",
        {x, writer.integers("starts", {options.start}), writer.integers("ends", {options.stop.value_or(shape[axis])}),
         writer.integers("axes", {first ? (axis + 1) % 3 + 1 : axis + 1}), writer.integers("steps", {options.step})});
  });
}

/// The channels' axis is cut in two, which change places.
LayerValue write_channel_shuffle(GraphWriter& writer, const LayerInputs& layer) {
  const std::int64_t groups = layer.options<ChannelShuffleOptions>().groups;
  const Shape& shape = layer.value().shape;
  return in_its_order(writer, layer, [&](const std::string& x, bool first) {
    const std::vector<std::int64_t> whole = batched(0, first ? Shape{shape[2], shape[0], shape[1]} : shape);
    const std::size_t axis = first ? 1 : whole.size() - 1;
    std::vector<std::int64_t> grouped = whole, perm(whole.size() + 1);
    grouped[axis] /= groups;
    grouped.insert(grouped.begin() + static_cast<std::ptrdiff_t>(axis), groups);
    std::iota(perm.begin(), perm.end(), std::int64_t{0});
    std::swap(perm[axis], perm[axis + 1]);
    const std::string shuffled = writer.add("Transpose", {writer.reshape(x, grouped)}, {{"perm", perm}});
    return writer.reshape(shuffled, whole);
  });
}

}  // namespace

std::string write_padding(GraphWriter& writer, std::string x, const Shape& image, const Padding& amounts,
                          ops::PaddingMode mode) {
  const Padding crop = positive(amounts, -1), pad = positive(amounts, 1);
  x = cropped(writer, x, image, crop);
  if (pad == Padding::symmetric(0)) return x;
  if (mode == ops::PaddingMode::circular) {
    x = wrapped(writer, x, 2, image[0] - crop.top - crop.bottom, pad.top, pad.bottom);
    return wrapped(writer, x, 3, image[1] - crop.left - crop.right, pad.left, pad.right);
  }
  const std::string pads = writer.integers("pads", {0, 0, pad.top, pad.left, 0, 0, pad.bottom, pad.right});
  const char* name = mode == ops::PaddingMode::reflect ? "reflect" : "edge";
  if (mode == ops::PaddingMode::zeros) name = "constant";
  return writer.add("Pad", {x, pads}, {{"mode", name}});
}

LayerWriters image_writers() {
  return {{"upsample", write_upsample},
          {"zero_padding", write_padding_layer},
          {"crop", write_padding_layer},
          {"depth_to_space", write_depth_to_space},
          {"channel_slice", write_channel_slice},
          {"channel_shuffle", write_channel_shuffle},
          {"slice", write_slice}};
}

}  // namespace bantam::onnx
