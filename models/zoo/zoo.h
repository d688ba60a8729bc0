// The zoo: well-known networks by name, the same as those of PyTorch that they are raced against.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/shape.h"
#include "bantam/engine/graph/graph.h"

namespace bantam::models {

struct ZooOptions {
  Shape input;  ///< (height, width, channels)
  std::int64_t classes = 1000;
  double width = 1.0;  ///< factor of the channels, where the network has one
};

struct ZooModel {
  std::string_view name;
  ZooOptions defaults;
  bool has_width = false;
  /// Throws ShapeError where the input is too small.
  Graph (*build)(const ZooOptions& options);
};

/// separable_cnn, resnet18_cifar, mobilenet_v1, resnet50.
std::span<const ZooModel> zoo();
/// Null where there is none.
const ZooModel* find_zoo_model(std::string_view name);
std::vector<std::string> zoo_names();

/// The CIFAR-10 example of Keras' style: sepconv 32, pool, sepconv 64, dense 64, dense; Glorot-uniform. 695,493
/// parameters.
Graph separable_cnn(const ZooOptions& options);
/// ResNet-18 for small images (He et al. 2016): a 3x3 stem of 64 channels and no max-pool; He-normal. 11,173,962
/// parameters.
Graph resnet18_cifar(const ZooOptions& options);
/// ResNet-50 v1.5, as torchvision's: the stride is on the 3x3 convolution; He-normal. 25,557,032 parameters.
Graph resnet50(const ZooOptions& options);
/// MobileNet v1 (Howard et al. 2017); `width` is its α; He-normal. 4,231,976 parameters.
Graph mobilenet_v1(const ZooOptions& options);

}  // namespace bantam::models
