// Source: PyTorch, aten/src/ATen/native/cpu/UpSampleKernel.cpp (upsample_bicubic2d_aa); timm, resample_abs_pos_embed.
#include "bantam/engine/train/resized_embedding.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "bantam/engine/layers/layers.h"

namespace bantam {
namespace {

/// Cubic convolution of Keys, 1981, with a = -0.5; 0 from a distance of 2 on.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// The weights of the old places, from the first on, that add up to a new one.
struct Taps {
  std::int64_t first = 0;
  std::vector<double> weights;
};

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), filter_scale = std::max(scale, 1.0);
  std::vector<Taps> all(static_cast<std::size_t>(to));
  for (std::int64_t i = 0; i < to; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5), support = 2 * filter_scale;
    Taps& taps = all[static_cast<std::size_t>(i)];
    taps.first = std::max(static_cast<std::int64_t>(std::floor(center - support + 0.5)), std::int64_t{0});
    const std::int64_t end = std::min(static_cast<std::int64_t>(std::floor(center + support + 0.5)), from);
    double sum = 0;
    for (std::int64_t j = taps.first; j < end; ++j) {
      taps.weights.push_back(cubic((static_cast<double>(j) - center + 0.5) / filter_scale));
      sum += taps.weights.back();
    }
    for (double& weight : taps.weights) weight /= sum;
  }
  return all;
}

/// (outer, old, inner) to (outer, new, inner).
std::vector<float> resized(std::span<const float> x, std::int64_t outer, const std::vector<Taps>& taps,
                           std::int64_t from, std::int64_t inner) {
  std::vector<float> y;
  for (std::int64_t o = 0; o < outer; ++o)
    for (const Taps& tap : taps)
      for (std::int64_t i = 0; i < inner; ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < tap.weights.size(); ++k)
          sum += tap.weights[k] *
                 x[static_cast<std::size_t>((o * from + tap.first + static_cast<std::int64_t>(k)) * inner + i)];
        y.push_back(static_cast<float>(sum));
      }
  return y;
}

}  // namespace

std::optional<PositionGrid> grid_of(const Shape& shape, std::int64_t prefix) {
  if (shape.rank() == 3 && prefix == 0) return PositionGrid{0, shape[0], shape[1]};
  if (shape.rank() != 2 || shape[0] <= prefix) return std::nullopt;
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(shape[0] - prefix))));
  if (side * side + prefix != shape[0]) return std::nullopt;
  return PositionGrid{prefix, side, side};
}

std::map<std::string, PositionGrid> position_grids(const Graph& graph) {
  std::map<std::string, PositionGrid> grids;
  for (const GraphNode& node : graph.nodes()) {
    if (node.layer == nullptr || node.layer->kind() != "position_embedding") continue;
    const GraphNode& before = graph.node(node.inputs[0]);
    std::int64_t prefix = 0;
    Shape image = node.output;
    if (const auto* tokens = before.layer == nullptr ? nullptr : before.layer->options<ClassTokenOptions>()) {
      prefix = tokens->count;
      const Shape& read = graph.node(before.inputs[0]).output;
      image = read.rank() == 3 ? read : node.output;
    }
    PositionGrid& grid = grids[node.name + "/embedding"];
    grid = grid_of(image, image.rank() == 3 ? 0 : prefix).value_or(PositionGrid{});
    grid.prefix = prefix;
  }
  return grids;
}

HostTensor resized_embedding(const HostTensor& embedding, const PositionGrid& from, const PositionGrid& to,
                             const Shape& shape) {
  const HostTensor wide = to_float32(embedding);
  const std::span<const float> values = float_values(wide);
  const std::int64_t channels = shape[-1];
  const auto before = static_cast<std::size_t>(from.prefix * channels);
  const std::vector<float> rows =
      resized(values.subspan(before), from.height, taps_of(from.width, to.width), from.width, channels);
  const std::vector<float> image = resized(rows, 1, taps_of(from.height, to.height), from.height, to.width * channels);
  std::vector<float> all(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(before));
  all.insert(all.end(), image.begin(), image.end());
  return host_tensor(shape, all);
}

}  // namespace bantam
