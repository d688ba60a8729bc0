// Reads keys that several augmentations have.
#include "bantam/data/augment/options.h"

#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr IntegerRange kExtent{.min = 1, .max = 16384};
constexpr IntegerRange kByte{.min = 0, .max = 255};

}  // namespace

DrawRange as_two(const ConfigNode& node, NumberRange range) {
  const std::vector<ConfigNode> items = node.items();
  if (items.size() != 2) node.fail(fmt::format("{}: expected a list of two numbers, as [0.5, 1]", node.path()));
  const DrawRange ends{items[0].as_number(range), items[1].as_number(range)};
  if (ends.low > ends.high)
    node.fail(fmt::format("{}: the first number, {}, is larger than the second, {}", node.path(), ends.low, ends.high));
  return ends;
}

ImageSize read_image_size(ConfigMap& map, std::string_view meaning) {
  const ConfigNode node = map.node({"size", meaning, "224 | [192, 256]"});
  if (!node.is_list()) return {node.as_integer(kExtent), 0};
  const auto size = node.as_pair(kExtent);
  return {size[0], size[1]};
}

DrawRange read_two(ConfigMap& map, ConfigKey key, NumberRange range, DrawRange otherwise) {
  return as_two(
      map.node(key, std::vector<std::string>{fmt::format("{}", otherwise.low), fmt::format("{}", otherwise.high)}),
      range);
}

DrawRange read_degrees(ConfigMap& map, ConfigKey key, std::string_view otherwise) {
  const ConfigNode node = otherwise.empty() ? map.node(key) : map.node(key, otherwise);
  if (node.is_list()) return as_two(node, {.min = -180, .max = 180});
  const double most = node.as_number({.min = 0, .max = 180});
  return {-most, most};
}

float read_share(ConfigMap& map, double otherwise) {
  return static_cast<float>(
      map.number({"p", "Share of the images that the stage changes.", "0.5"}, {.min = 0, .max = 1}, otherwise));
}

Interpolation read_interpolation(ConfigMap& map, std::string_view otherwise) {
  const bool bilinear =
      map.choice({"interpolation", "How values between pixels are found. Masks have the nearest.", "bilinear"},
                 {"nearest", "bilinear"}, otherwise) == "bilinear";
  return bilinear ? Interpolation::bilinear : Interpolation::nearest;
}

std::vector<std::uint8_t> as_bytes(const ConfigNode& node) {
  if (!node.is_list()) return {static_cast<std::uint8_t>(node.as_integer(kByte))};
  std::vector<std::uint8_t> values;
  for (const ConfigNode& item : node.items()) values.push_back(static_cast<std::uint8_t>(item.as_integer(kByte)));
  if (values.empty()) node.fail(node.path() + ": expected a value, or one a channel");
  return values;
}

std::int32_t read_mask_fill(ConfigMap& map) {
  return static_cast<std::int32_t>(map.integer(
      {"mask_fill", "Class number of a mask's pixels from outside: one that the loss ignores (ignore_index).", "0"},
      {.min = 0, .max = 65535}, 255));
}

WarpFill read_warp_fill(ConfigMap& map) {
  WarpFill fill;
  fill.image =
      as_bytes(map.node({"fill", "Stored value (0 to 255) of pixels from outside the image: one, or one a channel.",
                         "128 | [124, 116, 104]"},
                        "0"));
  fill.mask = read_mask_fill(map);
  return fill;
}

void check_fill(std::string_view stage, const std::vector<std::uint8_t>& fill, std::int64_t channels) {
  if (fill.size() != 1 && static_cast<std::int64_t>(fill.size()) != channels)
    throw ShapeError(fmt::format("{}: a fill of {} values, but images have {} channels (one value, or {})", stage,
                                 fill.size(), channels, channels));
}

}  // namespace bantam
