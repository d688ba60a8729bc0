// Reads the options that layers share, each with an error at the value's own place in the file.
#include "bantam/models/yaml/layer_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::models {
namespace {

constexpr IntegerRange kExtent{.min = 1, .max = 1 << 20};
constexpr IntegerRange kPadding{.min = 0, .max = 1 << 20};

std::string as_initializer(const ConfigNode& node) {
  const std::vector<std::string> names = initializer_names();
  const std::vector<std::string_view> views(names.begin(), names.end());
  return node.as_choice(views);
}

WhitenOptions read_whitening(ConfigMap map) {
  WhitenOptions whiten;
  whiten.images = map.integer({"images", "The first so many training images, or all where there are fewer.", "960"},
                              {.min = 1, .max = 1 << 30}, whiten.images);
  whiten.epsilon =
      map.number({"epsilon", "Added to eigenvalues, so that patches' faint directions stay faint.", "5.0e-4"},
                 {.min = 0, .max = 1e6, .min_open = true}, whiten.epsilon);
  map.finish();
  return whiten;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kActivationKinds; ++i) names.emplace_back(to_string(static_cast<Activation>(i)));
  return names;
}

std::string_view meaning_of(Activation kind) {
  switch (kind) {
    case Activation::none:
      return "The identity.";
    case Activation::relu:
      return "max(x, 0).";
    case Activation::relu6:
      return "min(max(x, 0), 6).";
    case Activation::leaky_relu:
      return "x from 0 on, slope · x below.";
    case Activation::gelu:
      return "x · Φ(x), with the normal distribution's Φ (GELU).";
    case Activation::silu:
      return "x · sigmoid(x), also called swish.";
    case Activation::sigmoid:
      return "1 / (1 + exp(-x)).";
    case Activation::tanh:
      return "The hyperbolic tangent.";
    case Activation::elu:
      return "x from 0 on, alpha · (exp(x) - 1) below (ELU).";
    case Activation::selu:
      return "1.0507 · elu with alpha 1.67326 (SELU). Goes with the initializer lecun_normal.";
    case Activation::mish:
      return "x · tanh(softplus(x)).";
    case Activation::hard_swish:
      return "x · hard_sigmoid(x).";
    case Activation::hard_sigmoid:
      return "min(max(x + 3, 0), 6) / 6.";
    case Activation::softplus:
      return "log(1 + exp(x)).";
  }
  return "";
}

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

ActivationOptions read_activation_options(Activation kind, ConfigMap& options) {
  options.describe(meaning_of(kind));
  ActivationOptions activation{.kind = kind};
  if (kind == Activation::leaky_relu)
    activation.slope = static_cast<float>(options.number(
        {"slope", "Slope for inputs below 0. PyTorch's default; Keras has 0.3.", "0.2"}, {.min = 0, .max = 1}, 0.01));
  if (kind == Activation::elu)
    activation.slope = static_cast<float>(
        options.number({"alpha", "What is approached far below 0 is -alpha.", "0.5"}, {.min = 0, .max = 1e3}, 1.0));
  return activation;
}

ActivationOptions read_activation(ConfigMap& options) {
  return read_activation(options, {"activation", "Applied to the layer's output.", "relu | {leaky_relu: {slope: 0.2}}"},
                         "none");
}

ActivationOptions read_activation(ConfigMap& options, const ConfigKey& key, std::string_view otherwise) {
  const ConfigNode node = options.node(key, otherwise);
  const std::vector<std::string> known = activation_names();
  node.describe_entries("activation", known, [](const std::string& name, const ConfigNode& value) {
    ConfigMap inner = value.as_map();
    (void)read_activation_options(parse_activation(name), inner);
    inner.finish();
  });
  const ConfigNode::Named named = node.as_named();
  if (std::find(known.begin(), known.end(), named.name) == known.end())
    named.options.fail_unknown("activation", named.name, known);
  ConfigMap inner = named.options.as_map();
  const ActivationOptions activation = read_activation_options(parse_activation(named.name), inner);
  inner.finish();
  return activation;
}

std::string read_initializer(ConfigMap& options) {
  return as_initializer(options.node(
      {"initializer",
       "Distribution that the weights start from, by its fan-in and fan-out; biases start at 0. he_normal suits "
       "deep networks with relu.",
       "he_normal"},
      "glorot_uniform"));
}

void read_initializer(ConfigMap& options, Conv2dOptions& conv) {
  const ConfigNode node = options.node(
      {"initializer",
       "What the weights start from: a distribution, by its fan-in and fan-out, or the data; biases start at 0. "
       "he_normal suits deep networks with relu. dirac: the first filters pass the inputs on, the others are as "
       "fan_in_uniform.",
       "he_normal | {whiten: {images: 960, epsilon: 5.0e-4}}"},
      "glorot_uniform");
  if (!node.is_map()) {
    conv.initializer = as_initializer(node);
    return;
  }
  ConfigMap map = node.as_map();
  const auto given = map.find(
      {"whiten",
       "Of a layer that reads the images, with 2 × kernel × kernel × channels filters: eigenvectors of its patches' "
       "covariance in the first training images, each divided by the root of its eigenvalue and epsilon, and their "
       "negatives. An even number of fewer filters has those of the largest eigenvalues. Weights from a file or a "
       "checkpoint are not whitened.",
       "{images: 960, epsilon: 5.0e-4}", "a distribution by its name"});
  map.finish();
  if (given)
    conv.whiten = read_whitening(given->as_map());
  else if (!node.is_described())
    node.fail("expected the name of an initializer, or {whiten: {images: N, epsilon: X}}");
}

}  // namespace bantam::models
