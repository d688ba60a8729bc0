// Test support: a model of one weight tensor with its optimizer, updated with gradients that a test writes.
#pragma once

#include <string>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace bantam::testing {

/// A dense layer without bias, whose gradients a test writes.
struct DenseWeights {
  DenseWeights(Runtime& runtime, Device device, std::int64_t units, const OptimizerOptions& options,
               Precision precision = {})
      : model(runtime, device, graph(units), {.precision = precision}), optimizer(model, options) {
    model.register_state(state);
    optimizer.register_state(state);
  }
  static Graph graph(std::int64_t units) {
    Graph graph({8});
    graph.add("head", dense({.units = units, .bias = false, .initializer = "ones"}));
    return graph;
  }

  void update(const std::vector<float>& gradient) {
    set(weight().gradient(), gradient);
    optimizer.update();
  }
  void set(const Tensor& tensor, const std::vector<float>& values) {
    copy_bytes(tensor.data(), values.data(), values.size() * sizeof(float), stream());
    synchronize(stream());
  }
  std::vector<float> values() { return to_host<float>(weight().master(), stream()); }
  Tensor entry(const std::string& name) {
    for (const StateEntry& each : state.tensors())
      if (each.name == name) return each.tensor;
    throw Error("no state named " + name);
  }
  Parameter& weight() { return *model.parameters().find("head/weight"); }
  Stream stream() { return model.runtime().stream(model.device()); }

  Model model;
  Optimizer optimizer;
  StateRegistry state;
};

}  // namespace bantam::testing
