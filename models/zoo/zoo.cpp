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
  static const ZooModel kModels[] = {
      {"separable_cnn", {Shape{32, 32, 3}, 10, 1.0}, false, separable_cnn},
      {"resnet18_cifar", {Shape{32, 32, 3}, 10, 1.0}, false, resnet18_cifar},
      {"mobilenet_v1", {Shape{224, 224, 3}, 1000, 1.0}, true, mobilenet_v1},
      {"resnet50", {Shape{224, 224, 3}, 1000, 1.0}, false, resnet50},
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
