// resize and center_crop: one size for all images, without chance; what validation images pass.
#include <cmath>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/augment/options.h"

namespace bantam {
namespace {

/// `wanted` of a shorter side alone has width 0.
class Resize : public Augmentation {
 public:
  explicit Resize(ImageSize wanted) : wanted_(wanted) {}

  std::string_view name() const override { return "resize"; }
  Augmentations for_evaluation() const override { return {std::make_shared<Resize>(*this)}; }
  bool has_chance() const override { return false; }
  bool has_region_form() const override { return true; }

  ImageSize size_after(ImageSize size) const override {
    if (wanted_.width > 0) return wanted_;
    if (size == ImageSize{}) return {};
    const bool upright = size.height >= size.width;
    const std::int64_t shorter = std::min(size.height, size.width), longer = std::max(size.height, size.width);
    const std::int64_t other = wanted_.height * longer / shorter;
    return upright ? ImageSize{other, wanted_.height} : ImageSize{wanted_.height, other};
  }
  Sampling region(ImageSize size, PhiloxSequence&) const override { return {.window = size, .size = size_after(size)}; }

 private:
  ImageSize wanted_;
};

class CenterCrop : public Augmentation {
 public:
  explicit CenterCrop(ImageSize size) : size_(size) {}

  std::string_view name() const override { return "center_crop"; }
  Augmentations for_evaluation() const override { return {std::make_shared<CenterCrop>(*this)}; }
  bool has_chance() const override { return false; }
  bool has_region_form() const override { return true; }

  ImageSize size_after(ImageSize size) const override {
    if (size != ImageSize{} && (size.height < size_.height || size.width < size_.width))
      throw ShapeError(
          fmt::format("center_crop: a window of {}x{} does not fit an image of {}x{}; a `resize` before it makes room",
                      size_.height, size_.width, size.height, size.width));
    return size_;
  }
  Sampling region(ImageSize size, PhiloxSequence&) const override {
    (void)size_after(size);
    // Halves to the even number, as torchvision.
    const auto middle = [](std::int64_t all, std::int64_t part) {
      return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(all - part) / 2.0));
    };
    return {middle(size.height, size_.height), middle(size.width, size_.width), size_, size_};
  }

 private:
  ImageSize size_;
};

}  // namespace

std::shared_ptr<const Augmentation> resize(ImageSize size) { return std::make_shared<Resize>(size); }
std::shared_ptr<const Augmentation> center_crop(ImageSize size) { return std::make_shared<CenterCrop>(size); }

std::shared_ptr<const Augmentation> read_resize(ConfigMap& options) {
  options.describe("Resamples whole images, bilinear and antialiased; masks get the nearest pixels.",
                   "resize: {size: 256}");
  return resize(
      read_image_size(options, "Pixels of the shorter side, the other one in proportion; or height and width."));
}

std::shared_ptr<const Augmentation> read_center_crop(ConfigMap& options) {
  options.describe("A window in the middle of each image.", "center_crop: {size: 224}");
  const ImageSize size = read_image_size(options, "Height and width of the window, in pixels.");
  return center_crop({size.height, size.width > 0 ? size.width : size.height});
}

}  // namespace bantam
