// color_jitter and grayscale.
#include <array>
#include <utility>

#include <fmt/format.h>

#include "bantam/data/augment/built_in.h"
#include "bantam/data/augment/options.h"

namespace bantam {
namespace {

struct ColorJitterOptions {
  DrawRange brightness{1.0, 1.0}, contrast{1.0, 1.0}, saturation{1.0, 1.0};  ///< factors
  DrawRange hue;                                                             ///< turns
  float share = 1.0f;
};

class ColorJitter : public Augmentation {
 public:
  explicit ColorJitter(const ColorJitterOptions& options) : options_(options) {}

  std::string_view name() const override { return "color_jitter"; }
  void check_images(const Shape& images, DType dtype) const override { check_colors(name(), images, dtype); }

  /// The four in random order, as torchvision; those that cannot change anything are passed over.
  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    using Change = void (*)(const PixelView&, float);
    if (!happens(options_.share, random)) return;
    std::array<std::pair<Change, const DrawRange*>, 4> changes = {{{adjust_brightness, &options_.brightness},
                                                                   {adjust_contrast, &options_.contrast},
                                                                   {adjust_saturation, &options_.saturation},
                                                                   {adjust_hue, &options_.hue}}};
    for (std::size_t i = changes.size(); i > 1; --i) std::swap(changes[i - 1], changes[random.below(i)]);
    const PixelView image = image_of(sample, name());
    for (const auto& [change, range] : changes) {
      const bool neutral = range->fixed() && range->low == (range == &options_.hue ? 0.0 : 1.0);
      if (!neutral) change(image, static_cast<float>(range->draw(random)));
    }
  }

 private:
  ColorJitterOptions options_;
};

class Grayscale : public Augmentation {
 public:
  explicit Grayscale(float share) : share_(share) {}

  std::string_view name() const override { return "grayscale"; }
  void check_images(const Shape& images, DType dtype) const override { check_colors(name(), images, dtype); }
  bool has_chance() const override { return share_ < 1.0f; }
  /// Where all training images are grey, so are the others.
  Augmentations for_evaluation() const override {
    if (has_chance()) return {};
    return {std::make_shared<Grayscale>(*this)};
  }
  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    if (happens(share_, random)) to_grey(image_of(sample, name()));
  }

 private:
  float share_;
};

/// x: factors of [1 - x, 1 + x], not below 0; a list has both ends.
DrawRange read_factors(ConfigMap& map, ConfigKey key) {
  const ConfigNode node = map.node(key, "0");
  if (!node.is_list()) {
    const double reach = node.as_number({.min = 0, .max = 100});
    return {std::max(0.0, 1.0 - reach), 1.0 + reach};
  }
  return as_two(node, {.min = 0, .max = 100});
}

DrawRange read_hue(ConfigMap& map) {
  const ConfigKey key{"hue", "Most turns of the hue either way, up to 0.5, or smallest and largest.",
                      "0.1 | [-0.1, 0.2]"};
  const ConfigNode node = map.node(key, "0");
  if (node.is_list()) return as_two(node, {.min = -0.5, .max = 0.5});
  const double reach = node.as_number({.min = 0, .max = 0.5});
  return {-reach, reach};
}

}  // namespace

std::shared_ptr<const Augmentation> read_color_jitter(ConfigMap& map) {
  map.describe("Random brightness, contrast, saturation and hue, in random order; torchvision's ColorJitter.",
               "color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}");
  ColorJitterOptions options;
  options.brightness = read_factors(
      map, {"brightness", "x: values times 1 - x to 1 + x; or the smallest and largest factor.", "0.4 | [0.5, 1.2]"});
  options.contrast = read_factors(
      map, {"contrast", "x: distances from the mean grey times 1 - x to 1 + x; or both factors.", "0.4 | [0.5, 1.2]"});
  options.saturation = read_factors(
      map,
      {"saturation", "x: distances from the pixel's grey times 1 - x to 1 + x; or both factors.", "0.4 | [0.5, 1.2]"});
  options.hue = read_hue(map);
  options.share = read_share(map, 1.0);
  return std::make_shared<ColorJitter>(options);
}

std::shared_ptr<const Augmentation> read_grayscale(ConfigMap& map) {
  map.describe("Some images become grey: their channels are equal then. With p: 1 held-out images too.",
               "grayscale: {p: 0.2}");
  return std::make_shared<Grayscale>(read_share(map, 0.1));
}

}  // namespace bantam
