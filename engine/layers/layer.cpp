// Declaring parameters under a layer's path.
#include "bantam/engine/layers/layer.h"

#include <fmt/format.h>

#include "bantam/engine/program/node_plan.h"

namespace bantam {

Parameter& LayerScope::parameter(std::string_view name, Shape shape, Initializer initializer, bool keep_float32,
                                 bool decays, bool frozen) {
  return parameters_.declare({.name = fmt::format("{}/{}", path_, name),
                              .shape = shape,
                              .initializer = std::move(initializer),
                              .keep_float32 = keep_float32,
                              .decays = decays,
                              .frozen = frozen});
}

Buffer& LayerScope::buffer(std::string_view name, Shape shape, float initial) {
  return buffers_.declare(fmt::format("{}/{}", path_, name), shape, initial);
}

NodeTraits Layer::traits() const { return {}; }

}  // namespace bantam
