// Each option is read with errors at the value's own place in the file.
#include "bantam/engine/layers/shared_options.h"

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::layers {
namespace {

constexpr IntegerRange kExtent{.min = 1, .max = 1 << 20};
constexpr IntegerRange kPadding{.min = 0, .max = 1 << 20};

Padding read_sides(const ConfigNode& node) {
  ConfigMap sides = node.as_map();
  Padding padding{.kind = PaddingKind::explicit_};
  padding.top = sides.integer({"top", "Rows above the image."}, kPadding, 0);
  padding.bottom = sides.integer({"bottom", "Rows below the image."}, kPadding, 0);
  padding.left = sides.integer({"left", "Columns left of the image."}, kPadding, 0);
  padding.right = sides.integer({"right", "Columns right of the image."}, kPadding, 0);
  sides.finish();
  return padding;
}

}  // namespace

Extent2d read_extent(ConfigMap& options, ConfigKey key) {
  const auto [h, w] = options.pair(key, kExtent);
  return {h, w};
}

Extent2d read_extent(ConfigMap& options, ConfigKey key, Extent2d otherwise) {
  const auto [h, w] = options.pair(key, kExtent, {otherwise.h, otherwise.w});
  return {h, w};
}

Padding read_padding(ConfigMap& options, std::string_view meaning) {
  const ConfigNode node =
      options.node({"padding", meaning, "same | 1 | [1, 2] | {top: 0, bottom: 1, left: 0, right: 1}"}, "valid");
  if (node.is_text("valid")) return Padding::valid();
  if (node.is_text("same")) return Padding::same();
  if (node.is_map()) return read_sides(node);
  try {
    const auto [h, w] = node.as_pair(kPadding);
    return {PaddingKind::explicit_, h, h, w, w};
  } catch (const ConfigError&) {  // the general message would not say that words are allowed too
    node.fail(fmt::format("{}: expected valid, same, an integer ≥ 0, [height, width] or {{top, bottom, left, right}}",
                          node.path()));
  }
}

Padding read_amounts(ConfigMap& options, ConfigKey key) {
  const ConfigNode node = options.node(key);
  if (node.is_map()) return read_sides(node);
  const auto [h, w] = node.as_pair(kPadding);
  return {PaddingKind::explicit_, h, h, w, w};
}

ops::PaddingMode read_padding_mode(ConfigMap& options, std::string_view key) {
  const std::string mode = options.choice(
      {key,
       "What stands beyond the edge. zeros; replicate: the edge's pixel; reflect: the image mirrored at the edge's "
       "pixel; circular: its other end. PyTorch's names.",
       "reflect"},
      {"zeros", "replicate", "reflect", "circular"}, "zeros");
  if (mode == "replicate") return ops::PaddingMode::replicate;
  if (mode == "reflect") return ops::PaddingMode::reflect;
  return mode == "circular" ? ops::PaddingMode::circular : ops::PaddingMode::zeros;
}

InitializerOptions as_initializer(const ConfigNode& node) {
  if (!node.is_map()) {
    const std::vector<std::string> names = initializer_names();
    const std::vector<std::string_view> views(names.begin(), names.end());
    return node.as_choice(views);
  }
  ConfigMap map = node.as_map();
  const std::optional<InitializerOptions> initializer = find_deviation(map);
  map.finish();
  if (!initializer && !node.is_described())
    node.fail("expected the name of an initializer, {truncated_normal: deviation} or {normal: deviation}");
  return initializer.value_or("zeros");
}

std::optional<InitializerOptions> find_deviation(ConfigMap& map) {
  constexpr NumberRange kDeviation{.min = 0, .max = 1e3, .min_open = true};
  std::optional<InitializerOptions> initializer;
  for (const auto& [name, meaning] :
       {std::pair{"normal", "Deviation of a normal distribution, in place of its name's 0.05."},
        {"truncated_normal",
         "The same of a normal distribution without values beyond two deviations. Vision transformers have 0.02."}})
    if (const auto given = map.find({name, meaning, "0.02", "a distribution by its name"})) {
      if (initializer && !given->is_described()) map.self().fail("expected one initializer");
      initializer = {name, static_cast<float>(given->as_number(kDeviation))};
    }
  return initializer;
}

InitializerOptions read_initializer(ConfigMap& options) {
  return as_initializer(options.node(
      {"initializer",
       "Distribution that the weights start from, by its fan-in and fan-out; biases start at 0. he_normal suits "
       "deep networks with relu.",
       "he_normal | {truncated_normal: 0.02}"},
      "glorot_uniform"));
}

}  // namespace bantam::layers
