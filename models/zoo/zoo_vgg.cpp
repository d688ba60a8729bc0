// VGG without batch normalisation (Simonyan and Zisserman 2015): five stages of 3x3 convolutions, and three dense
// layers.
#include <fmt/format.h>

#include "bantam/models/zoo/zoo.h"
#include "bantam/models/zoo/zoo_builder.h"

namespace bantam::models {
namespace {

/// Stage s has depth[s] convolutions and ends with a max-pool.
Graph vgg(const ZooOptions& options, const int (&depth)[5]) {
  constexpr std::int64_t kChannels[] = {64, 128, 256, 512, 512};
  const ActivationOptions relu{.kind = Activation::relu};
  Graph graph(options.input);
  for (int stage = 0; stage < 5; ++stage) {
    for (int i = 0; i < depth[stage]; ++i)
      graph.add(fmt::format("stage{}_conv{}", stage + 1, i + 1), conv2d({.filters = kChannels[stage],
                                                                         .padding = Padding::symmetric(1),
                                                                         .activation = relu,
                                                                         .initializer = "he_normal"}));
    graph.add(fmt::format("stage{}_pool", stage + 1), max_pool({}));
  }
  graph.add("flatten", flatten());
  for (const int number : {1, 2}) {
    graph.add(fmt::format("hidden{}", number), dense({.units = 4096, .activation = relu, .initializer = "he_normal"}));
    graph.add(fmt::format("dropout{}", number), dropout({.rate = 0.5f}));
  }
  add_classifier(graph, options.classes);
  return graph;
}

}  // namespace

Graph vgg11(const ZooOptions& options) { return vgg(options, {1, 1, 2, 2, 2}); }
Graph vgg16(const ZooOptions& options) { return vgg(options, {2, 2, 3, 3, 3}); }

}  // namespace bantam::models
