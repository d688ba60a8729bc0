// Source: torchvision's tables of weights (torchvision.models.get_model_weights).
#include "bantam/run/weights/published_weights.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/sha256.h"
#include "bantam/base/text.h"
#include "bantam/data/files/file_bytes.h"

namespace bantam::run {
namespace {

constexpr PublishedWeights kPublished[] = {
    {"resnet18", "resnet18-f37072fd.pth", "ResNet18_Weights.IMAGENET1K_V1", 69.758},
    {"resnet34", "resnet34-b627a593.pth", "ResNet34_Weights.IMAGENET1K_V1", 73.314},
    {"resnet50", "resnet50-0676ba61.pth", "ResNet50_Weights.IMAGENET1K_V1", 76.130},
    {"resnet50", "resnet50-11ad3fa6.pth", "ResNet50_Weights.IMAGENET1K_V2", 80.858},
    {"resnet101", "resnet101-63fe2227.pth", "ResNet101_Weights.IMAGENET1K_V1", 77.374},
    {"resnet101", "resnet101-cd907fc2.pth", "ResNet101_Weights.IMAGENET1K_V2", 81.886},
    {"vgg11", "vgg11-8a719046.pth", "VGG11_Weights.IMAGENET1K_V1", 69.020},
    {"vgg16", "vgg16-397923af.pth", "VGG16_Weights.IMAGENET1K_V1", 71.592},
    {"vgg16", "vgg16_features-amdegroot-88682ab5.pth", "VGG16_Weights.IMAGENET1K_FEATURES", 0},
    {"mobilenet_v2", "mobilenet_v2-b0353104.pth", "MobileNet_V2_Weights.IMAGENET1K_V1", 71.878},
    {"mobilenet_v2", "mobilenet_v2-7ebf99e0.pth", "MobileNet_V2_Weights.IMAGENET1K_V2", 72.154},
    {"mobilenet_v3_small", "mobilenet_v3_small-047dcff4.pth", "MobileNet_V3_Small_Weights.IMAGENET1K_V1", 67.668},
    {"mobilenet_v3_large", "mobilenet_v3_large-8738ca79.pth", "MobileNet_V3_Large_Weights.IMAGENET1K_V1", 74.042},
    {"mobilenet_v3_large", "mobilenet_v3_large-5c1a4163.pth", "MobileNet_V3_Large_Weights.IMAGENET1K_V2", 75.274},
    {"efficientnet_b0", "efficientnet_b0_rwightman-7f5810bc.pth", "EfficientNet_B0_Weights.IMAGENET1K_V1", 77.692},
    {"densenet121", "densenet121-a639ec97.pth", "DenseNet121_Weights.IMAGENET1K_V1", 74.434},
    {"convnext_tiny", "convnext_tiny-983f1562.pth", "ConvNeXt_Tiny_Weights.IMAGENET1K_V1", 82.520},
    {"vit_base_16", "vit_b_16-c867db91.pth", "ViT_B_16_Weights.IMAGENET1K_V1", 81.072},
    {"vit_base_16", "vit_b_16_swag-9ac1b537.pth", "ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1", 85.304},
    {"vit_base_16", "vit_b_16_lc_swag-4e70ced5.pth", "ViT_B_16_Weights.IMAGENET1K_SWAG_LINEAR_V1", 81.886},
    {"vit_base_32", "vit_b_32-d86f8d99.pth", "ViT_B_32_Weights.IMAGENET1K_V1", 75.912},
    {"vit_large_16", "vit_l_16-852ce7e3.pth", "ViT_L_16_Weights.IMAGENET1K_V1", 79.662},
    {"vit_large_16", "vit_l_16_swag-4f3808c9.pth", "ViT_L_16_Weights.IMAGENET1K_SWAG_E2E_V1", 88.064},
    {"vit_large_16", "vit_l_16_lc_swag-4d563306.pth", "ViT_L_16_Weights.IMAGENET1K_SWAG_LINEAR_V1", 85.146}};

constexpr std::size_t kDigits = 8;

/// The digits of "resnet18-f37072fd.pth"; empty where the name does not end so.
std::string_view digits_of(std::string_view name) {
  const std::size_t dot = name.find_last_of('.');
  if (dot == std::string_view::npos || dot < kDigits + 1 || name[dot - kDigits - 1] != '-') return {};
  const std::string_view digits = name.substr(dot - kDigits, kDigits);
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos ? digits : std::string_view();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  constexpr std::int64_t kChunk = std::int64_t{1} << 20;
  const auto file = open_plain_bytes(path);
  std::vector<std::uint8_t> chunk(static_cast<std::size_t>(std::min(kChunk, file->size())));
  Sha256 sum;
  for (std::int64_t at = 0; at < file->size(); at += kChunk) {
    chunk.resize(static_cast<std::size_t>(std::min(kChunk, file->size() - at)));
    file->read(at, chunk);
    sum.update(chunk);
  }
  return sum.finish();
}

}  // namespace

std::span<const PublishedWeights> published_weights() { return kPublished; }

PublishedCheck check_published(const std::filesystem::path& path) {
  const std::string sum = sha256_of_file(path), name = path.filename().string();
  const auto found = std::ranges::find_if(
      kPublished, [&](const PublishedWeights& each) { return sum.starts_with(digits_of(each.file)); });
  if (found != std::end(kPublished))
    return {.text = fmt::format(
                "published as {}: torchvision's {}{}", found->file, found->weights,
                found->top1 > 0 ? fmt::format(", {:.1f} % of ImageNet's validation images right", found->top1) : "")};
  const std::string_view digits = digits_of(name);
  if (digits.empty() || sum.starts_with(digits)) return {};
  return {
      .text = fmt::format("its name says that its SHA-256 begins with {}; it begins with {}: it is another file, or "
                          "a damaged one",
                          digits, sum.substr(0, kDigits)),
      .warns = true};
}

}  // namespace bantam::run
