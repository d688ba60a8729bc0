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
  static const auto large = [](double drop_path) { return ZooOptions{Shape{224, 224, 3}, 1000, 1.0, drop_path}; };
  static const ZooOptions kSmall{Shape{32, 32, 3}, 10}, kLarge = large(0.0), kMask{Shape{256, 256, 3}, 2};
  static const ZooModel kModels[] = {
      {"separable_cnn", kSmall, false, false, separable_cnn},
      {"resnet18_cifar", kSmall, false, false, resnet18_cifar},
      {"resnet20", kSmall, false, false, resnet20},
      {"resnet56", kSmall, false, false, resnet56},
      {"wide_resnet28_10", kSmall, true, false, wide_resnet28_10},
      {"vgg11", kLarge, false, false, vgg11},
      {"vgg16", kLarge, false, false, vgg16},
      {"resnet18", kLarge, false, false, resnet18},
      {"resnet34", kLarge, false, false, resnet34},
      {"resnet50", kLarge, false, false, resnet50},
      {"resnet101", kLarge, false, false, resnet101},
      {"densenet121", kLarge, false, false, densenet121},
      {"mobilenet_v1", kLarge, true, false, mobilenet_v1},
      {"mobilenet_v2", kLarge, true, false, mobilenet_v2},
      {"mobilenet_v3_small", kLarge, true, false, mobilenet_v3_small},
      {"mobilenet_v3_large", kLarge, true, false, mobilenet_v3_large},
      {"efficientnet_b0", large(0.2), true, true, efficientnet_b0},
      {"convnext_tiny", large(0.1), false, true, convnext_tiny},
      {"convnextv2_atto", kLarge, false, true, convnextv2_atto},
      {"convnextv2_tiny", kLarge, false, true, convnextv2_tiny},
      {"shufflenet_v2_x1_0", kLarge, false, false, shufflenet_v2_x1_0},
      {"mobilevit_s", {Shape{256, 256, 3}, 1000}, false, false, mobilevit_s},
      {"vit_tiny_16", kLarge, false, true, vit_tiny_16},
      {"vit_small_16", kLarge, false, true, vit_small_16},
      {"vit_base_16", kLarge, false, true, vit_base_16},
      {"vit_base_32", kLarge, false, true, vit_base_32},
      {"vit_large_16", kLarge, false, true, vit_large_16},
      {"deit3_small_16", kLarge, false, true, deit3_small_16},
      {"deit3_base_16", kLarge, false, true, deit3_base_16},
      {"unet", kMask, true, false, unet},
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
