// Depth of layers in units that fine-tuning gives learning rates of their own: the blocks of a network.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bantam/engine/graph/graph.h"

namespace bantam {

/// Units after the one of each parameter, in the order of `parameters`, which are the graph's in its order: 0 for those
/// of the last layer. A block (the name before the first '/') with parameters is a unit, and so is the last layer with
/// parameters. Other layers outside blocks belong to the block before them; those before the first block are one unit
/// together. In a network without blocks each layer with parameters is a unit. Source: layer-wise decay of Clark et
/// al., ELECTRA, 2020, in the units of BEiT (Bao et al., 2021).
std::vector<int> units_after(const Graph& graph, std::span<const std::string> parameters);

/// decay to the power of units_after, by parameter.
std::vector<float> layer_decay_scales(const Graph& graph, std::span<const std::string> parameters, float decay);

}  // namespace bantam
