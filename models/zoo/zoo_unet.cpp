// U-Net (Ronneberger et al. 2015) with padded convolutions and batch normalisation: down four times, up again, each way
// up beside what the way down had at that size; a class for each pixel.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

constexpr int kHalvings = 4;

void check_input(const Shape& input) {
  constexpr std::int64_t kStep = 1 << kHalvings;
  if (input.rank() == 3 && input[0] % kStep == 0 && input[1] % kStep == 0) return;
  throw ShapeError(
      fmt::format("unet: expected images whose height and width are multiples of {}, got {}", kStep, to_string(input)));
}

void add_double_conv(Graph& graph, const std::string& name, std::int64_t channels) {
  const NodeId first = add_conv_norm(graph, name + "/conv1", graph.output(), {.filters = channels});
  add_conv_norm(graph, name + "/conv2", first, {.filters = channels});
}

}  // namespace

Graph unet(const ZooOptions& options) {
  check_input(options.input);
  const auto channels = [&](int level) {
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(64 << level) * options.width));
  };
  Graph graph(options.input);
  NodeId skips[kHalvings] = {};
  for (int level = 0; level <= kHalvings; ++level) {
    if (level > 0) {
      skips[level - 1] = graph.output();
      graph.add(fmt::format("down{}/pool", level + 1), max_pool({}));
    }
    add_double_conv(graph, fmt::format("down{}", level + 1), channels(level));
  }
  for (int level = kHalvings - 1; level >= 0; --level) {
    const std::string name = fmt::format("up{}", level + 1);
    const NodeId up =
        graph.add(name + "/upsample", transposed_conv2d({.filters = channels(level), .initializer = "he_normal"}));
    graph.add(name + "/concat", concat(), {skips[level], up});
    add_double_conv(graph, name, channels(level));
  }
  graph.add("classifier", conv2d({.filters = options.classes, .kernel = {1, 1}, .initializer = "he_normal"}));
  return graph;
}

}  // namespace bantam::models
