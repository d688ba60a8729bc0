// Readers of layers that join, weigh or drop inputs.
#include "bantam/models/yaml/kinds.h"
#include "bantam/models/yaml/layer_options.h"

namespace bantam::models {

namespace {

LayerPtr read_concat(ConfigMap& options) {
  options.describe("Two or more inputs one after the other along the last axis: their channels side by side.",
                   "concat");
  return concat();
}

LayerPtr read_average(ConfigMap& options) {
  options.describe("The mean of two or more inputs of one shape.", "average");
  return average();
}

LayerPtr read_multiply(ConfigMap& options) {
  options.describe(
      "The product of two or more inputs, element by element. Of an image and (channels): each channel times its "
      "factor.",
      "multiply");
  return multiply();
}

}  // namespace

Kinds join_kinds() { return {{"concat", read_concat}, {"average", read_average}, {"multiply", read_multiply}}; }

}  // namespace bantam::models
