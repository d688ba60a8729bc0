// random_crop: where the window of each sample lies.
#include <cstring>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/augment/options.h"
#include "bantam/data/augment/pixels.h"

namespace bantam {
namespace {

constexpr std::int64_t kMostExtent = 16384;  // corners are 16-bit numbers, padding included

/// A number below `bound` from 32 random bits, by multiply and shift.
std::int64_t below(std::uint32_t bits, std::int64_t bound) {
  return static_cast<std::int64_t>((std::uint64_t{bits} * static_cast<std::uint64_t>(bound)) >> 32);
}

/// Position in [0, extent) that `position` reads, or -1 where it reads padding.
std::int64_t source_of(std::int64_t position, std::int64_t extent, kernels::PadMode mode) {
  if (position >= 0 && position < extent) return position;
  if (mode == kernels::PadMode::zero) return -1;
  if (extent == 1) return 0;
  const std::int64_t period = 2 * (extent - 1), p = ((position % period) + period) % period;
  return p < extent ? p : period - p;
}

struct Corner {
  std::int64_t top = 0, left = 0;
};

/// The window of the same size at `corner`; `fill` is an element of padding.
void move_window(const MaskView& pixels, Corner corner, kernels::PadMode mode, std::span<const std::byte> fill) {
  const std::size_t bytes = pixels.element_bytes;
  const auto at = [&](std::int64_t y, std::int64_t x) {
    return static_cast<std::size_t>(y * pixels.width + x) * bytes;
  };
  const std::vector<std::byte> before(pixels.data, pixels.data + at(pixels.height, 0));
  for (std::int64_t y = 0; y < pixels.height; ++y)
    for (std::int64_t x = 0; x < pixels.width; ++x) {
      const std::int64_t row = source_of(y + corner.top, pixels.height, mode);
      const std::int64_t column = source_of(x + corner.left, pixels.width, mode);
      const bool inside = row >= 0 && column >= 0;
      std::memcpy(pixels.data + at(y, x), inside ? before.data() + at(row, column) : fill.data(), bytes);
    }
}

class RandomCrop : public Augmentation {
 public:
  RandomCrop(const RandomCropOptions& options, bool from_middle) : options_(options), from_middle_(from_middle) {}

  std::string_view name() const override { return "random_crop"; }
  Augmentations for_evaluation() const override { return {std::make_shared<RandomCrop>(options_, true)}; }
  bool has_chance() const override { return !from_middle_; }
  bool has_device_form() const override { return true; }
  bool pads_with_black() const override { return options_.padding > 0 && options_.mode == kernels::PadMode::zero; }
  /// Returns the class number that `apply` pads masks with; none for mirrored ones, which show their own classes alone.
  std::optional<std::int32_t> mask_fill() const override {
    if (from_middle_ || !has_host_form() || options_.mode != kernels::PadMode::zero) return std::nullopt;
    return options_.mask_fill;
  }

  /// A region lies within the image.
  bool has_region_form() const override { return options_.padding == 0; }
  ImageSize size_after(ImageSize size) const override {
    const ImageSize window{options_.height > 0 ? options_.height : size.height,
                           options_.width > 0 ? options_.width : size.width};
    if (size != ImageSize{} && (window.height > size.height || window.width > size.width))
      throw ShapeError(fmt::format("random_crop: a window of {}x{} does not fit an image of {}x{}", window.height,
                                   window.width, size.height, size.width));
    return window;
  }
  Sampling region(ImageSize size, PhiloxSequence& random) const override {
    const ImageSize window = size_after(size);
    std::int64_t top = (size.height - window.height) / 2, left = (size.width - window.width) / 2;
    if (!from_middle_) {
      top = below(random.next(), size.height - window.height + 1);
      left = below(random.next(), size.width - window.width + 1);
    }
    return {top, left, window, window};
  }

  /// Padded windows of the images' own size, of masks too, whose padding is `mask_fill` where images have black.
  bool has_host_form() const override { return options_.padding > 0 && options_.height == 0; }
  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    if (from_middle_) return;
    const std::int64_t reach = 2 * options_.padding + 1;
    const std::int64_t top = below(random.next(), reach), left = below(random.next(), reach);
    const Corner corner{top - options_.padding, left - options_.padding};
    const SampleField& field = sample.fields[0];
    const std::size_t bytes = field.bytes() / static_cast<std::size_t>(field.shape[0] * field.shape[1]);
    const std::vector<std::byte> black(bytes, std::byte{0});
    move_window({sample.buffers[0].data(), field.shape[0], field.shape[1], bytes, field.dtype}, corner, options_.mode,
                black);
    for_each_mask(sample, [&](const MaskView& mask) {
      move_window(mask, corner, options_.mode, mask_element(mask, options_.mask_fill));
    });
  }

  /// The same with the images' own size as its size, where that is what its options say.
  std::optional<RandomCropOptions> without_equal_size(ImageSize images) const {
    const bool padded = options_.padding > 0 && options_.height > 0;
    if (!padded || images != ImageSize{options_.height, options_.width}) return std::nullopt;
    RandomCropOptions options = options_;
    options.height = options.width = 0;
    return options;
  }

  void window(kernels::ImageBatchShape& shape) const override {
    if (options_.height > 0) shape.out_h = options_.height;
    if (options_.width > 0) shape.out_w = options_.width;
    shape.pad_mode = options_.mode;
    const std::int64_t padding = options_.padding;
    const std::int64_t padded_h = shape.in_h + 2 * padding, padded_w = shape.in_w + 2 * padding;
    if (padding < 0 || shape.out_h > padded_h || shape.out_w > padded_w)
      throw ShapeError(
          fmt::format("random_crop: a window of {}x{} does not fit an image of {}x{} padded by {} on each side",
                      shape.out_h, shape.out_w, shape.in_h, shape.in_w, padding));
    if (padded_h > kMostExtent || padded_w > kMostExtent)
      throw ShapeError(fmt::format("random_crop: a padded image has at most {} rows and columns", kMostExtent));
  }

  void place(const kernels::ImageBatchShape& shape, const PhiloxWords& random,
             kernels::ImagePlacement& placement) const override {
    std::int64_t top = (shape.in_h - shape.out_h) / 2, left = (shape.in_w - shape.out_w) / 2;
    if (!from_middle_) {
      const std::int64_t padding = options_.padding;
      top = -padding + below(random.v[0], shape.in_h + 2 * padding - shape.out_h + 1);
      left = -padding + below(random.v[1], shape.in_w + 2 * padding - shape.out_w + 1);
    }
    placement.top = static_cast<std::int16_t>(top);
    placement.left = static_cast<std::int16_t>(left);
  }

 private:
  RandomCropOptions options_;
  bool from_middle_;
};

}  // namespace

std::shared_ptr<const Augmentation> random_crop(const RandomCropOptions& options) {
  return std::make_shared<RandomCrop>(options, false);
}

std::shared_ptr<const Augmentation> without_equal_size(std::shared_ptr<const Augmentation> stage, ImageSize images) {
  if (const auto* crop = dynamic_cast<const RandomCrop*>(stage.get()))
    if (const auto options = crop->without_equal_size(images)) return random_crop(*options);
  return stage;
}

std::shared_ptr<const Augmentation> read_random_crop(ConfigMap& map) {
  map.describe("A window of the padded image at a random place. Held-out images are cut from the middle.",
               "random_crop: {padding: 4}");
  RandomCropOptions options;
  const auto given = map.find({"size", "Height and width of the window, in pixels.", "28 | [24, 28]", "the image's"});
  if (given) {
    const auto size = given->as_pair({.min = 1, .max = kMostExtent});
    options.height = size[0];
    options.width = size[1];
  }
  const bool says_something = given || map.has("padding");
  options.padding =
      map.integer({"padding", "Pixels added on each side first.", "4"}, {.min = 0, .max = kMostExtent / 2}, 0);
  options.mode =
      map.choice({"mode", "What the padding holds. zero: black; reflect: the image mirrored, without its edge."},
                 {"zero", "reflect"}, "zero") == "reflect"
          ? kernels::PadMode::reflect
          : kernels::PadMode::zero;
  options.mask_fill = read_mask_fill(map);
  map.finish();
  if (!says_something) map.self().fail_at_key("random_crop needs a size or padding: without them it changes nothing");
  return random_crop(options);
}

}  // namespace bantam
