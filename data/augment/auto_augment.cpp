// trivial_augment (Müller and Hutter, 2021) and rand_augment (Cubuk et al., 2020): operations drawn from a table, with
// torchvision's ranges.
#include "bantam/data/augment/auto_augment.h"

#include <cmath>
#include <numbers>
#include <span>

#include "bantam/data/augment/built_in.h"

namespace bantam {
namespace {

using enum AugmentOperation;

constexpr OperationRange kTrivial[] = {
    {identity, 0, 0, false},     {shear_x, 0, 0.99, true},   {shear_y, 0, 0.99, true},    {translate_x, 0, 32, true},
    {translate_y, 0, 32, true},  {rotate, 0, 135, true},     {brightness, 0, 0.99, true}, {color, 0, 0.99, true},
    {contrast, 0, 0.99, true},   {sharpness, 0, 0.99, true}, {posterize, 8, 2, false},    {solarize, 255, 0, false},
    {autocontrast, 0, 0, false}, {equalize, 0, 0, false}};

/// Translations are shares of the image's extent.
constexpr OperationRange kRand[] = {{identity, 0, 0, false},
                                    {shear_x, 0, 0.3, true},
                                    {shear_y, 0, 0.3, true},
                                    {translate_x, 0, 150.0 / 331.0, true},
                                    {translate_y, 0, 150.0 / 331.0, true},
                                    {rotate, 0, 30, true},
                                    {brightness, 0, 0.9, true},
                                    {color, 0, 0.9, true},
                                    {contrast, 0, 0.9, true},
                                    {sharpness, 0, 0.9, true},
                                    {posterize, 8, 4, false},
                                    {solarize, 255, 0, false},
                                    {autocontrast, 0, 0, false},
                                    {equalize, 0, 0, false}};

struct AutoAugmentOptions {
  std::string_view name;
  std::span<const OperationRange> table;
  int operations = 1;
  int magnitude = -1;  ///< a bin; below 0: each operation draws its own
  float share = 1.0f;
  Interpolation interpolation = Interpolation::nearest;
  WarpFill fill;
};

class AutoAugment : public Augmentation {
 public:
  explicit AutoAugment(AutoAugmentOptions options) : options_(std::move(options)) {}

  std::string_view name() const override { return options_.name; }
  void check_images(const Shape& images, DType dtype) const override {
    check_colors(name(), images, dtype);
    check_fill(name(), options_.fill.image, images[2]);
  }
  std::optional<std::int32_t> mask_fill() const override { return options_.fill.mask; }

  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    if (!happens(options_.share, random)) return;
    const PixelView image = image_of(sample, name());
    for (int i = 0; i < options_.operations; ++i) {
      const OperationRange& entry = options_.table[random.below(options_.table.size())];
      const int bin = options_.magnitude < 0 ? static_cast<int>(random.below(kMagnitudeBins)) : options_.magnitude;
      double magnitude = entry.magnitude(bin);
      const bool shares = options_.magnitude >= 0;  // rand_augment's translations
      if (shares && entry.operation == translate_x) magnitude *= static_cast<double>(image.width);
      if (shares && entry.operation == translate_y) magnitude *= static_cast<double>(image.height);
      if (entry.both && random.below(2) == 1) magnitude = -magnitude;
      apply_operation(sample, {entry.operation, magnitude}, options_.interpolation, options_.fill);
    }
  }

 private:
  AutoAugmentOptions options_;
};

void read_common(ConfigMap& map, AutoAugmentOptions& options) {
  options.interpolation = read_interpolation(map, "nearest");
  options.fill = read_warp_fill(map);
  options.share = read_share(map, 1.0);
}

double degrees_of_slope(double slope) { return std::atan(slope) * 180.0 / std::numbers::pi; }

/// True where the operation moves pixels.
bool map_of(const DrawnOperation& drawn, AffineMap& map) {
  switch (drawn.operation) {
    case shear_x:
      map = {.shear_x = degrees_of_slope(drawn.magnitude), .about_corner = true};
      return true;
    case shear_y:
      map = {.shear_y = degrees_of_slope(drawn.magnitude), .about_corner = true};
      return true;
    case translate_x:
      map = {.translate_x = std::trunc(drawn.magnitude)};
      return true;
    case translate_y:
      map = {.translate_y = std::trunc(drawn.magnitude)};
      return true;
    case rotate:
      map = {.degrees = -drawn.magnitude};  // against the clock
      return true;
    default:
      return false;
  }
}

void change_values(const PixelView& image, const DrawnOperation& drawn) {
  const auto factor = static_cast<float>(1.0 + drawn.magnitude);
  switch (drawn.operation) {
    case brightness:
      return adjust_brightness(image, factor);
    case color:
      return adjust_saturation(image, factor);
    case contrast:
      return adjust_contrast(image, factor);
    case sharpness:
      return adjust_sharpness(image, factor);
    case posterize:
      return bantam::posterize(image, static_cast<int>(drawn.magnitude));
    case solarize:
      return bantam::solarize(image, static_cast<float>(drawn.magnitude));
    case autocontrast:
      return bantam::autocontrast(image);
    case equalize:
      return bantam::equalize(image);
    default:
      return;
  }
}

}  // namespace

double OperationRange::magnitude(int bin) const {
  const double share = static_cast<double>(bin) / (kMagnitudeBins - 1);
  if (operation == AugmentOperation::posterize) return first - std::nearbyint((first - last) * share);  // whole bits
  return first + (last - first) * share;
}

std::span<const OperationRange> trivial_operations() { return kTrivial; }
std::span<const OperationRange> rand_operations() { return kRand; }

void apply_operation(const AugmentedSample& sample, const DrawnOperation& drawn, Interpolation interpolation,
                     const WarpFill& fill) {
  const PixelView image = image_of(sample, "an operation of trivial_augment or rand_augment");
  AffineMap map;
  if (map_of(drawn, map))
    warp(sample, image, map, interpolation, fill);
  else
    change_values(image, drawn);
}

std::shared_ptr<const Augmentation> read_trivial_augment(ConfigMap& map) {
  map.describe(
      "One operation of 14 (shears, shifts, rotation, brightness, color, contrast, sharpness, posterize, solarize, "
      "autocontrast, equalize, none) of random magnitude: torchvision's TrivialAugmentWide.",
      "trivial_augment");
  AutoAugmentOptions options{.name = "trivial_augment", .table = kTrivial};
  read_common(map, options);
  return std::make_shared<AutoAugment>(std::move(options));
}

std::shared_ptr<const Augmentation> read_rand_augment(ConfigMap& map) {
  map.describe("Several operations of trivial_augment's 14, of one magnitude: torchvision's RandAugment.",
               "rand_augment: {ops: 2, magnitude: 9}");
  AutoAugmentOptions options{.name = "rand_augment", .table = kRand};
  options.operations = static_cast<int>(
      map.integer({"ops", "Operations an image, one after the other.", "3"}, {.min = 1, .max = 14}, 2));
  options.magnitude = static_cast<int>(map.integer({"magnitude", "How strong they are, of 0 (no change) to 30.", "15"},
                                                   {.min = 0, .max = kMagnitudeBins - 1}, 9));
  read_common(map, options);
  return std::make_shared<AutoAugment>(std::move(options));
}

}  // namespace bantam
