// The registry, and the separable CNN.
#include "bantam/models/zoo/zoo.h"

#include "bantam/engine/layers/layers.h"

namespace bantam::models {

Graph separable_cnn(const ZooOptions& options) {
  const ActivationOptions relu{.kind = Activation::relu};
  Graph graph(options.input);
  graph.add(separable_conv2d({.filters = 32, .activation = relu}));
  graph.add(max_pool({}));
  graph.add(separable_conv2d({.filters = 64, .activation = relu}));
  graph.add(flatten());
  graph.add(dense({.units = 64, .activation = relu}));
  graph.add(dense({.units = options.classes}));
  return graph;
}

std::span<const ZooModel> zoo() {
  static const ZooOptions kSmall{Shape{32, 32, 3}, 10, 1.0}, kLarge{Shape{224, 224, 3}, 1000, 1.0},
      kMask{Shape{256, 256, 3}, 2, 1.0};
  static const ZooModel kModels[] = {
      {"separable_cnn", kSmall, false, separable_cnn},
      {"resnet18_cifar", kSmall, false, resnet18_cifar},
      {"resnet20", kSmall, false, resnet20},
      {"resnet56", kSmall, false, resnet56},
      {"wide_resnet28_10", kSmall, true, wide_resnet28_10},
      {"vgg11", kLarge, false, vgg11},
      {"vgg16", kLarge, false, vgg16},
      {"resnet18", kLarge, false, resnet18},
      {"resnet34", kLarge, false, resnet34},
      {"resnet50", kLarge, false, resnet50},
      {"resnet101", kLarge, false, resnet101},
      {"densenet121", kLarge, false, densenet121},
      {"mobilenet_v1", kLarge, true, mobilenet_v1},
      {"mobilenet_v2", kLarge, true, mobilenet_v2},
      {"mobilenet_v3_small", kLarge, true, mobilenet_v3_small},
      {"mobilenet_v3_large", kLarge, true, mobilenet_v3_large},
      {"efficientnet_b0", kLarge, true, efficientnet_b0},
      {"convnext_tiny", kLarge, false, convnext_tiny},
      {"unet", kMask, true, unet},
  };
  return kModels;
}

const ZooModel* find_zoo_model(std::string_view name) {
  for (const ZooModel& model : zoo())
    if (model.name == name) return &model;
  return nullptr;
}

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (const ZooModel& model : zoo()) names.emplace_back(model.name);
  return names;
}

}  // namespace bantam::models
