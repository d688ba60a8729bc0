// random_erasing: a rectangle of the image is overwritten (Zhong et al., 2017); torchvision's rule.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/augment/options.h"

namespace bantam {
namespace {

struct RandomErasingOptions {
  float share = 0.5f;
  DrawRange area{0.02, 0.33}, ratio{0.3, 3.3};
  std::vector<std::uint8_t> value = {0};  ///< empty: random bytes
};

class RandomErasing : public Augmentation {
 public:
  explicit RandomErasing(RandomErasingOptions options) : options_(std::move(options)) {}

  std::string_view name() const override { return "random_erasing"; }
  void check_images(const Shape& images, DType dtype) const override {
    check_pixels(name(), images, dtype);
    if (!options_.value.empty()) check_fill(name(), options_.value, images[2]);
  }

  bool has_host_form() const override { return true; }
  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    const PixelView image = image_of(sample, name());
    const Sampling drawn = draw({image.height, image.width}, random);
    if (drawn.window.height == 0) return;
    std::uint8_t* corner = image.data + (drawn.top * image.width + drawn.left) * image.channels;
    erase({corner, drawn.window.height, drawn.window.width, image.channels}, image.width * image.channels, random);
  }

  bool has_device_form() const override { return !options_.value.empty(); }
  void window(kernels::ImageBatchShape& shape) const override {
    constexpr std::int64_t kMostExtent = 16384;  // rectangles are 16-bit numbers
    if (shape.out_h > kMostExtent || shape.out_w > kMostExtent)
      throw ShapeError(fmt::format("random_erasing: an image has at most {} rows and columns", kMostExtent));
    for (std::int64_t c = 0; c < kernels::kMostScaledChannels; ++c)
      shape.erased[c] =
          options_.value[options_.value.size() == 1 ? 0 : std::min<std::size_t>(c, options_.value.size() - 1)];
  }
  void place(const kernels::ImageBatchShape& shape, const PhiloxWords& random,
             kernels::ImagePlacement& placement) const override {
    PhiloxSequence sequence(philox_key(random.v[3], RandomPurpose::augmentation, hash_name(name())));
    const Sampling drawn = draw({shape.out_h, shape.out_w}, sequence);
    placement.erase_top = static_cast<std::int16_t>(drawn.top);
    placement.erase_left = static_cast<std::int16_t>(drawn.left);
    placement.erase_height = static_cast<std::int16_t>(drawn.window.height);
    placement.erase_width = static_cast<std::int16_t>(drawn.window.width);
  }

 private:
  /// A rectangle; an empty one in images that stay, and where none of ten is smaller than the image.
  Sampling draw(ImageSize image, PhiloxSequence& random) const {
    constexpr int kTries = 10;
    if (!happens(options_.share, random)) return {};
    const DrawRange shape{std::log(options_.ratio.low), std::log(options_.ratio.high)};
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const double area = static_cast<double>(image.height * image.width) * options_.area.draw(random);
      const double ratio = std::exp(shape.draw(random));
      const auto height = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * ratio)));
      const auto width = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / ratio)));
      if (height >= image.height || width >= image.width) continue;
      const auto place = [&](std::int64_t room) {
        return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(room + 1)));
      };
      const std::int64_t top = place(image.height - height), left = place(image.width - width);
      return {.top = top, .left = left, .window = {height, width}};
    }
    return {};
  }
  void erase(const PixelView& window, std::int64_t row_bytes, PhiloxSequence& random) const {
    const std::vector<std::uint8_t>& value = options_.value;
    for (std::int64_t y = 0; y < window.height; ++y) {
      std::uint8_t* row = window.data + y * row_bytes;
      for (std::int64_t x = 0; x < window.width * window.channels; ++x)
        row[x] = value.empty() ? static_cast<std::uint8_t>(random.next() >> 24)
                               : value[value.size() == 1 ? 0 : static_cast<std::size_t>(x % window.channels)];
    }
  }

  RandomErasingOptions options_;
};

}  // namespace

std::shared_ptr<const Augmentation> read_random_erasing(ConfigMap& map) {
  map.describe("Overwrites a rectangle of some images; masks stay.", "random_erasing: {p: 0.25}");
  RandomErasingOptions options;
  options.share = read_share(map, 0.5);
  constexpr NumberRange kRatio{.min = 0.01, .max = 100};
  options.area =
      read_two(map, {"scale", "Area of the rectangle, as a share of the image's: smallest and largest.", "[0.02, 0.2]"},
               {.min = 0, .max = 1, .min_open = true}, options.area);
  options.ratio = read_two(map, {"ratio", "Height over width of the rectangle: smallest and largest.", "[0.5, 2]"},
                           kRatio, options.ratio);
  const ConfigKey value{"value",
                        "Stored value (0 to 255) that the rectangle gets: one, or one a channel; random: each its own.",
                        "128 | [124, 116, 104] | random"};
  const ConfigNode node = map.node(value, "0");
  options.value = node.is_text("random") ? std::vector<std::uint8_t>() : as_bytes(node);
  return std::make_shared<RandomErasing>(std::move(options));
}

}  // namespace bantam
