// rotation and affine: random affine maps of images and their masks.
#include <cmath>

#include "bantam/data/augment/built_in.h"
#include "bantam/data/augment/options.h"

namespace bantam {
namespace {

struct AffineOptions {
  std::string_view name;
  float share = 1.0f;
  DrawRange degrees;                            ///< clockwise
  double translate_x = 0.0, translate_y = 0.0;  ///< most, as shares of the image's width and height
  DrawRange scale{1.0, 1.0}, shear_x, shear_y;
  Interpolation interpolation = Interpolation::bilinear;
  WarpFill fill;
};

class RandomAffine : public Augmentation {
 public:
  explicit RandomAffine(AffineOptions options) : options_(std::move(options)) {}

  std::string_view name() const override { return options_.name; }
  void check_images(const Shape& images, DType dtype) const override {
    check_pixels(name(), images, dtype);
    check_fill(name(), options_.fill.image, images[2]);
  }
  std::optional<std::int32_t> mask_fill() const override { return options_.fill.mask; }
  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    const PixelView image = image_of(sample, name());
    if (happens(options_.share, random))
      warp(sample, image, draw(image, random), options_.interpolation, options_.fill);
  }

 private:
  AffineMap draw(const PixelView& image, PhiloxSequence& random) const {
    const auto shift = [&](double share, std::int64_t extent) {
      const double most = share * static_cast<double>(extent);
      return std::nearbyint(DrawRange{-most, most}.draw(random));
    };
    AffineMap map;
    map.degrees = options_.degrees.draw(random);
    map.translate_x = shift(options_.translate_x, image.width);
    map.translate_y = shift(options_.translate_y, image.height);
    map.scale = options_.scale.draw(random);
    map.shear_x = options_.shear_x.draw(random);
    map.shear_y = options_.shear_y.draw(random);
    return map;
  }

  AffineOptions options_;
};

/// Pixels of translation and turns need no corner of their own: what all maps read.
void read_common(ConfigMap& map, AffineOptions& options) {
  options.interpolation = read_interpolation(map, "bilinear");
  options.fill = read_warp_fill(map);
  options.share = read_share(map, 1.0);
}

}  // namespace

std::shared_ptr<const Augmentation> read_rotation(ConfigMap& map) {
  map.describe("Turns images about their centre by a random angle.", "rotation: {degrees: 15}");
  AffineOptions options{.name = "rotation"};
  options.degrees = read_degrees(
      map, {"degrees", "Most degrees either way, or smallest and largest (clockwise).", "15 | [-10, 30]"}, "");
  read_common(map, options);
  return std::make_shared<RandomAffine>(std::move(options));
}

std::shared_ptr<const Augmentation> read_affine(ConfigMap& map) {
  map.describe("Turns, shifts, scales and shears images at random; torchvision's RandomAffine.",
               "affine: {degrees: 10, translate: [0.1, 0.1], scale: [0.9, 1.1], shear: 5}");
  AffineOptions options{.name = "affine"};
  options.degrees = read_degrees(
      map, {"degrees", "Most degrees either way, or smallest and largest (clockwise).", "10 | [-10, 30]"}, "0");
  const ConfigNode translate = map.node(
      {"translate", "Most of the shift, as shares of width and height; one number for both.", "0.1 | [0.1, 0.2]"}, "0");
  constexpr NumberRange kShare{.min = 0, .max = 1};
  if (!translate.is_list()) {
    options.translate_x = options.translate_y = translate.as_number(kShare);
  } else {
    const std::vector<ConfigNode> shares = translate.items();
    if (shares.size() != 2) translate.fail(translate.path() + ": expected two shares, of width and height");
    options.translate_x = shares[0].as_number(kShare);
    options.translate_y = shares[1].as_number(kShare);
  }
  options.scale = read_two(map, {"scale", "Factor of the image's size: smallest and largest.", "[0.8, 1.2]"},
                           {.min = 0.01, .max = 100}, {1.0, 1.0});
  options.shear_x = read_degrees(
      map, {"shear", "Most degrees of horizontal shear either way, or smallest and largest.", "10 | [-5, 10]"}, "0");
  options.shear_y = read_degrees(
      map, {"shear_y", "Most degrees of vertical shear either way, or smallest and largest.", "10 | [-5, 10]"}, "0");
  read_common(map, options);
  return std::make_shared<RandomAffine>(std::move(options));
}

}  // namespace bantam
