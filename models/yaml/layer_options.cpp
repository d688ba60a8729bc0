// Reads the options that layers share, each with an error at the value's own place in the file.
#include "bantam/models/yaml/layer_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::models {
namespace {

constexpr IntegerRange kExtent{.min = 1, .max = 1 << 20};
constexpr IntegerRange kPadding{.min = 0, .max = 1 << 20};

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(Activation::tanh); ++i)
    names.emplace_back(to_string(static_cast<Activation>(i)));
  return names;
}

Padding read_sides(const ConfigNode& node) {
  ConfigMap sides = node.as_map();
  Padding padding{.kind = PaddingKind::explicit_};
  padding.top = sides.integer("top", kPadding, 0);
  padding.bottom = sides.integer("bottom", kPadding, 0);
  padding.left = sides.integer("left", kPadding, 0);
  padding.right = sides.integer("right", kPadding, 0);
  sides.finish();
  return padding;
}

}  // namespace

Extent2d read_extent(ConfigMap& options, std::string_view key) {
  const auto [h, w] = options.pair(key, kExtent);
  return {h, w};
}

Extent2d read_extent(ConfigMap& options, std::string_view key, Extent2d otherwise) {
  const auto [h, w] = options.pair(key, kExtent, {otherwise.h, otherwise.w});
  return {h, w};
}

Padding read_padding(ConfigMap& options) {
  if (!options.has("padding")) {
    (void)options.text("padding", "valid");
    return Padding::valid();
  }
  const ConfigNode node = options.node("padding");
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

ActivationOptions read_activation_options(Activation kind, ConfigMap& options) {
  ActivationOptions activation{.kind = kind};
  if (kind == Activation::leaky_relu)
    activation.slope = static_cast<float>(options.number("slope", {.min = 0, .max = 1}, 0.01));
  return activation;
}

ActivationOptions read_activation(ConfigMap& options) {
  if (!options.has("activation")) {
    (void)options.text("activation", "none");
    return {};
  }
  const ConfigNode::Named named = options.node("activation").as_named();
  const std::vector<std::string> known = activation_names();
  if (std::find(known.begin(), known.end(), named.name) == known.end())
    named.options.fail_unknown("activation", named.name, known);
  ConfigMap inner = named.options.as_map();
  const ActivationOptions activation = read_activation_options(parse_activation(named.name), inner);
  inner.finish();
  return activation;
}

std::string read_initializer(ConfigMap& options) {
  if (!options.has("initializer")) return options.text("initializer", "glorot_uniform");
  const std::vector<std::string> names = initializer_names();
  const std::vector<std::string_view> views(names.begin(), names.end());
  return options.node("initializer").as_choice(views);
}

}  // namespace bantam::models
