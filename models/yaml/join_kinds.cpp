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

LayerPtr read_squeeze_excite(ConfigMap& options) {
  options.describe(
      "Each channel of an image times a factor from 0 to 1, which two small dense layers compute from the means of all "
      "channels (Hu, Shen and Sun, 2018).",
      "squeeze_excite: {units: 24, activation: silu}");
  SqueezeExciteOptions layer;
  layer.units = options.integer({"units", "Units of the layer between; the channels / 16 or / 4 are usual.", "24"},
                                {.min = 1, .max = 1 << 20});
  layer.activation = read_activation(options, {"activation", "Of the units between.", "silu"}, "relu");
  constexpr std::string_view kGates[] = {"sigmoid", "hard_sigmoid"};
  layer.gate = parse_activation(
      options.node({"gate", "Of the factors: sigmoid, or hard_sigmoid as in MobileNetV3.", "hard_sigmoid"}, "sigmoid")
          .as_choice(kGates));
  layer.initializer = read_initializer(options);
  return squeeze_excite(layer);
}

}  // namespace

Kinds join_kinds() {
  return {{"concat", read_concat},
          {"average", read_average},
          {"multiply", read_multiply},
          {"squeeze_excite", read_squeeze_excite}};
}

}  // namespace bantam::models
