// Internal: a sample's image and masks as stages of host form change them, and changes of an image's pixels. Formulas
// are torchvision's (transforms.v2.functional of uint8 tensors, and Pillow's grey), so that values differ from its by
// rounding alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "bantam/data/augment/augmentation.h"

namespace bantam {

/// Rows of pixels of interleaved channels.
struct PixelView {
  std::uint8_t* data = nullptr;
  std::int64_t height = 0, width = 0, channels = 0;

  std::int64_t values() const { return height * width * channels; }
};

/// A target with an element (a class number, say) for each pixel of the image, by which it moves with the image.
struct MaskView {
  std::byte* data = nullptr;
  std::int64_t height = 0, width = 0;
  std::size_t element_bytes = 0;
  DType dtype = DType::int32;
};

/// Throws ShapeError that names the stage where images are not (height, width, channels) of uint8.
PixelView image_of(const AugmentedSample& sample, std::string_view stage);
/// Calls `change` for each target whose first extents are the image's.
void for_each_mask(const AugmentedSample& sample, const std::function<void(const MaskView& mask)>& change);
/// The bytes of one element of an integer mask that is the number `fill`; of a mask of floats 0.
std::vector<std::byte> mask_element(const MaskView& mask, std::int32_t fill);

/// Throws ShapeError that names the stage unless images are (height, width, channels) of uint8.
void check_pixels(std::string_view stage, const Shape& images, DType dtype);
/// The same, unless they have 1 or 3 channels besides: stages of colour.
void check_colors(std::string_view stage, const Shape& images, DType dtype);

/// (19595·R + 38470·G + 7471·B + 2^15) >> 16, as Pillow and decode_image.
inline std::uint8_t grey_of(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 32768u) >> 16);
}

/// factor·x.
void adjust_brightness(const PixelView& image, float factor);
/// factor·x + (1 - factor)·mean of the grey image.
void adjust_contrast(const PixelView& image, float factor);
/// factor·x + (1 - factor)·grey of the pixel; grey images stay.
void adjust_saturation(const PixelView& image, float factor);
/// The hue moves by `shift` turns, in [-0.5, 0.5]; grey images stay.
void adjust_hue(const PixelView& image, float shift);
/// factor·x + (1 - factor)·(the mean of 3x3 pixels, the middle one five times); pixels of the edge stay.
void adjust_sharpness(const PixelView& image, float factor);
/// Each channel becomes the pixel's grey.
void to_grey(const PixelView& image);
/// Only the upper `bits` bits stay, in [0, 8].
void posterize(const PixelView& image, int bits);
/// 255 - x where x >= threshold.
void solarize(const PixelView& image, float threshold);
/// Channel by channel, the smallest value becomes 0 and the largest 255.
void autocontrast(const PixelView& image);
/// Channel by channel, values become as equally frequent as they can.
void equalize(const PixelView& image);
void mirror_rows(const PixelView& image);
void mirror_rows(const MaskView& mask);

}  // namespace bantam
