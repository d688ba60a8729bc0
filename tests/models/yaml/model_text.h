// Shared by the tests of models: a model from YAML text, and its number of parameters on the meta device.
#pragma once

#include <string>

#include "bantam/base/config/config.h"
#include "bantam/engine/model/model.h"
#include "bantam/models/yaml/network.h"

namespace bantam::models {

inline ModelSpec model_from(const std::string& yaml) {
  return read_model(ConfigDocument::parse(yaml, "test.yaml").map().node("model"), "test");
}

/// A model of one layer on images of 9x9x4.
inline ModelSpec one_layer(const std::string& layer) {
  return model_from("model:\n  input: [9, 9, 4]\n  layers:\n    - " + layer + "\n");
}

inline std::int64_t parameter_count(const Graph& graph) {
  Runtime runtime;
  const Model model(runtime, Device::meta_of(Device::cpu()), graph, {});
  return model.parameters().parameter_count();
}

}  // namespace bantam::models
