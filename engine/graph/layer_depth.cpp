// One walk over the parameters' names.
#include "bantam/engine/graph/layer_depth.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace bantam {

std::vector<int> units_after(const Graph& graph, std::span<const std::string> parameters) {
  std::set<std::string> blocks;
  for (const GraphNode& node : graph.nodes())
    if (node.name.find('/') != std::string::npos) blocks.insert(block_of(node.name));
  const auto in_block = [&](const std::string& owner) { return blocks.contains(owner); };
  std::vector<std::string> owners;  // the block, or the layer outside blocks
  for (const std::string& name : parameters) owners.push_back(block_of(name));
  const bool has_blocks = std::ranges::any_of(owners, in_block);
  std::vector<int> units;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const bool is_new = i == 0 || owners[i] != owners[i - 1];
    const bool begins = !has_blocks || in_block(owners[i]) || owners[i] == owners.back();
    units.push_back(i == 0 ? 0 : units.back() + (is_new && begins ? 1 : 0));
  }
  for (int& unit : units) unit = units.back() - unit;
  return units;
}

std::vector<float> layer_decay_scales(const Graph& graph, std::span<const std::string> parameters, float decay) {
  std::vector<float> scales;
  for (const int units : units_after(graph, parameters))
    scales.push_back(static_cast<float>(std::pow(static_cast<double>(decay), units)));
  return scales;
}

}  // namespace bantam
