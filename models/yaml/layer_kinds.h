// The table of layer kinds that a config may name, one reader a kind.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/engine/layers/layer.h"

namespace bantam::models {

/// One kind: reads its options (all but `name`, which every layer has) and gives the layer. Throws ConfigError at the
/// option's position.
struct LayerKind {
  std::string_view name;
  LayerPtr (*read)(ConfigMap& options);
};

/// Null where there is no such kind.
const LayerKind* find_layer_kind(std::string_view name);
/// Names of all kinds, in the table's order.
std::vector<std::string> layer_kind_names();

}  // namespace bantam::models
