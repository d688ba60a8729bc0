// Attributes of windows, and padding as a configuration writes it.
#include "bantam/models/onnx/import/window.h"

#include <algorithm>

#include <fmt/format.h>

namespace bantam::onnx {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 20;  // as a configuration's

std::array<std::int64_t, 2> pair_of(const Node& node, const std::string& name, std::span<const std::int64_t> values) {
  if (values.empty()) return {1, 1};
  if (values.size() != 2 || std::ranges::any_of(values, [](std::int64_t value) { return value < 1 || value > kMost; }))
    fail(node, fmt::format("{}: {} numbers; expected two from 1 on, of height and width", name, values.size()));
  return {values[0], values[1]};
}

/// All that `same` needs, of one axis.
std::int64_t same_total(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t dilation) {
  const std::int64_t out = (in + stride - 1) / stride, field = (kernel - 1) * dilation + 1;
  return std::max<std::int64_t>((out - 1) * stride + field - in, 0);
}

}  // namespace

ImageWindow read_window(const Node& node, std::span<const std::int64_t> kernel, const Shape& image) {
  if (kernel.size() != 2) fail(node, fmt::format("a kernel of {} axes; expected 2, height and width", kernel.size()));
  ImageWindow window{.kernel = pair_of(node, "kernel_shape", kernel),
                     .stride = pair_of(node, "strides", integers(node, "strides")),
                     .dilation = pair_of(node, "dilations", integers(node, "dilations"))};
  const std::string automatic = text(node, "auto_pad", "NOTSET");
  std::array<std::int64_t, 2> total{};
  for (const std::size_t i : {0u, 1u})
    total[i] = same_total(image[static_cast<int>(i)], window.kernel[i], window.stride[i], window.dilation[i]);
  const std::array<std::int64_t, 4> same{total[0] / 2, total[1] / 2, total[0] - total[0] / 2, total[1] - total[1] / 2};
  if (automatic == "NOTSET") {
    const std::vector<std::int64_t> pads = integers(node, "pads", {0, 0, 0, 0});
    if (pads.size() != 4 || std::ranges::any_of(pads, [](std::int64_t pad) { return pad < 0 || pad > kMost; }))
      fail(node, "pads: expected four numbers from 0 on");
    std::ranges::copy(pads, window.pads.begin());
  } else if (automatic == "SAME_UPPER") {
    window.same = true;
    window.pads = same;
  } else if (automatic == "SAME_LOWER") {
    window.pads = {same[2], same[3], same[0], same[1]};
  } else if (automatic != "VALID") {
    fail(node, fmt::format("auto_pad '{}'; expected NOTSET, SAME_UPPER, SAME_LOWER or VALID", automatic));
  }
  const bool even = window.pads[0] == window.pads[2] && window.pads[1] == window.pads[3];
  window.same = window.same || (!even && window.pads == same);
  return window;
}

void set_amounts(ImportedLayer& layer, std::string_view key, const std::array<std::int64_t, 4>& pads) {
  const auto [top, left, bottom, right] = pads;
  if (top == bottom && left == right) return layer.set(key, pair_text(top, left));
  std::string sides;
  const std::pair<const char*, std::int64_t> named[] = {
      {"top", top}, {"bottom", bottom}, {"left", left}, {"right", right}};
  for (const auto& [side, pixels] : named)
    if (pixels != 0) sides += fmt::format("{}{}: {}", sides.empty() ? "" : ", ", side, pixels);
  layer.set(key, "{" + sides + "}");
}

void set_padding(ImportedLayer& layer, const ImageWindow& window) {
  if (window.same)
    layer.set("padding", "same");
  else if (window.pads != std::array<std::int64_t, 4>{})
    set_amounts(layer, "padding", window.pads);
}

}  // namespace bantam::onnx
