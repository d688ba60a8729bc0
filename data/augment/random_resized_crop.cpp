// random_resized_crop: a window of random area and shape at a random place, resampled to one size (Szegedy et al.,
// 2015); torchvision's rule.
#include <algorithm>
#include <cmath>

#include "bantam/data/augment/built_in.h"
#include "bantam/data/augment/options.h"

namespace bantam {
namespace {

/// Python's: halves to the even number.
std::int64_t rounded(double value) { return static_cast<std::int64_t>(std::nearbyint(value)); }

class RandomResizedCrop : public Augmentation {
 public:
  explicit RandomResizedCrop(const RandomResizedCropOptions& options) : options_(options) {}

  std::string_view name() const override { return "random_resized_crop"; }
  bool has_region_form() const override { return true; }
  ImageSize size_after(ImageSize) const override { return options_.size; }

  /// The shorter side 256/224 of the window, whose middle is then cut out.
  Augmentations for_evaluation() const override {
    const ImageSize size = options_.size;
    const auto enlarged = [](std::int64_t side) { return side * 256 / 224; };
    const bool square = size.height == size.width;
    const ImageSize whole =
        square ? ImageSize{enlarged(size.height), 0} : ImageSize{enlarged(size.height), enlarged(size.width)};
    return {resize(whole), center_crop(size)};
  }

  Sampling region(ImageSize size, PhiloxSequence& random) const override {
    constexpr int kTries = 10;
    const DrawRange area{options_.least_area, options_.most_area};
    const DrawRange shape{std::log(options_.least_ratio), std::log(options_.most_ratio)};
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const double wanted = static_cast<double>(size.height * size.width) * area.draw(random);
      const double ratio = std::exp(shape.draw(random));
      const ImageSize window{rounded(std::sqrt(wanted / ratio)), rounded(std::sqrt(wanted * ratio))};
      if (window.height < 1 || window.width < 1 || window.height > size.height || window.width > size.width) continue;
      const auto place = [&](std::int64_t room) {
        return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(room + 1)));
      };
      const std::int64_t top = place(size.height - window.height), left = place(size.width - window.width);
      return {top, left, window, options_.size};
    }
    return largest_in_middle(size);
  }

 private:
  /// Where no try fits: the largest window of a permitted shape.
  Sampling largest_in_middle(ImageSize size) const {
    const auto height = static_cast<double>(size.height), width = static_cast<double>(size.width);
    ImageSize window = size;
    if (width / height < options_.least_ratio) window.height = rounded(width / options_.least_ratio);
    if (width / height > options_.most_ratio) window.width = rounded(height * options_.most_ratio);
    window.height = std::clamp<std::int64_t>(window.height, 1, size.height);
    window.width = std::clamp<std::int64_t>(window.width, 1, size.width);
    return {(size.height - window.height) / 2, (size.width - window.width) / 2, window, options_.size};
  }

  RandomResizedCropOptions options_;
};

}  // namespace

std::shared_ptr<const Augmentation> random_resized_crop(const RandomResizedCropOptions& options) {
  return std::make_shared<RandomResizedCrop>(options);
}

std::shared_ptr<const Augmentation> read_random_resized_crop(ConfigMap& map) {
  map.describe(
      "A window of random area and shape at a random place, resampled to one size. Held-out images get a resize of the "
      "shorter side to size · 256 / 224 and a center_crop (of height and width, where these differ).",
      "random_resized_crop: {size: 224}");
  RandomResizedCropOptions options;
  const ImageSize size = read_image_size(map, "Height and width that windows are resampled to, in pixels.");
  options.size = {size.height, size.width > 0 ? size.width : size.height};
  const DrawRange area =
      read_two(map, {"scale", "Area of the window, as a share of the image's: smallest and largest.", "[0.35, 1]"},
               {.min = 0, .max = 1, .min_open = true}, {options.least_area, options.most_area});
  const DrawRange ratio = read_two(map, {"ratio", "Width over height of the window: smallest and largest.", "[0.5, 2]"},
                                   {.min = 0.01, .max = 100}, {options.least_ratio, options.most_ratio});
  options.least_area = area.low;
  options.most_area = area.high;
  options.least_ratio = ratio.low;
  options.most_ratio = ratio.high;
  return random_resized_crop(options);
}

}  // namespace bantam
