// Files of weights that torchvision publishes for the zoo's networks, known by the SHA-256 that their names begin to
// say.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace bantam::run {

struct PublishedWeights {
  std::string_view model;    ///< the zoo's name
  std::string_view file;     ///< "resnet18-f37072fd.pth": with the first 8 digits of its SHA-256
  std::string_view weights;  ///< "ResNet18_Weights.IMAGENET1K_V1"
  double top1 = 0;           ///< accuracy on ImageNet's validation images that torchvision states, per cent; 0: none
};

/// All that are known, by network.
std::span<const PublishedWeights> published_weights();

/// "published as resnet18-f37072fd.pth: torchvision's ResNet18_Weights.IMAGENET1K_V1, …" for a file whose SHA-256
/// begins as one of them. A warning for a file that has the name of one of them, or any that ends with 8 digits as
/// PyTorch's hub names files, and another SHA-256. Empty for all others. Reads the whole file. Throws DataError.
struct PublishedCheck {
  std::string text;
  bool warns = false;
};
PublishedCheck check_published(const std::filesystem::path& path);

}  // namespace bantam::run
