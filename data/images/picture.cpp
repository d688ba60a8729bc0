#include "bantam/data/images/picture.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

/// a / 255, rounded to nearest, of a product of two bytes.
int over_255(int product) {
  const int t = product + 128;
  return ((t >> 8) + t) >> 8;
}

/// 16 bits become 8 by rounding v / 257.
std::uint8_t to_byte(std::uint16_t value) { return static_cast<std::uint8_t>((value + 128u) / 257u); }

struct FloatColour {
  float r = 0, g = 0, b = 0, alpha = 0;
};

/// One value of a pixel as float.
template <class T>
float value_at(const std::uint8_t* pixel, std::size_t channel) {
  T value;
  std::memcpy(&value, pixel + channel * sizeof(T), sizeof(T));
  return static_cast<float>(value);
}

template <class T>
FloatColour colour_at(const std::uint8_t* pixel, PixelLayout layout, float most) {
  const auto v = [&](std::size_t channel) { return value_at<T>(pixel, channel); };
  switch (layout) {
    case PixelLayout::grey:
      return {v(0), v(0), v(0), most};
    case PixelLayout::grey_alpha:
      return {v(0), v(0), v(0), v(1)};
    case PixelLayout::rgba:
      return {v(0), v(1), v(2), v(3)};
    default:
      return {v(0), v(1), v(2), most};
  }
}

bool is_grey(PixelLayout layout) { return layout == PixelLayout::grey || layout == PixelLayout::grey_alpha; }
bool has_alpha(PixelLayout layout) { return layout == PixelLayout::grey_alpha || layout == PixelLayout::rgba; }

template <class T>
void convert_values_of(const Picture& in, const PixelBox& box, const PixelForm& form, float most, Image& out) {
  const bool is_flattened = form.background && form.channels != 4 && has_alpha(in.layout);
  const std::size_t step = in.pixel_bytes();
  auto* to = out.pixels.data();
  const auto put = [&](float value) {
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
  };
  for (std::int64_t y = 0; y < box.size.height; ++y) {
    const std::uint8_t* pixel = in.bytes.data() + static_cast<std::size_t>(box.top + y) * in.row_bytes() +
                                static_cast<std::size_t>(box.left) * step;
    for (std::int64_t x = 0; x < box.size.width; ++x, pixel += step) {
      FloatColour colour = colour_at<T>(pixel, in.layout, most);
      if (is_flattened) {
        const float share = colour.alpha / most;
        const auto over = [&](float& value, std::uint8_t behind) {
          value = value * share + static_cast<float>(behind) / 255.0f * most * (1 - share);
        };
        over(colour.r, (*form.background)[0]);
        over(colour.g, (*form.background)[1]);
        over(colour.b, (*form.background)[2]);
      }
      if (form.channels == 1) {
        const bool is_stored_grey = is_grey(in.layout) && !is_flattened;
        put(is_stored_grey ? colour.r : (19595 * colour.r + 38470 * colour.g + 7471 * colour.b) / 65536);
        continue;
      }
      put(colour.r);
      put(colour.g);
      put(colour.b);
      if (form.channels == 4) put(colour.alpha);
    }
  }
}

}  // namespace

void check_picture_size(std::string_view name, ImageSize size) {
  if (size.height < 1 || size.width < 1) throw DataError(fmt::format("{}: the image is empty", name));
  if (std::max(size.height, size.width) > kMostSide)
    throw DataError(fmt::format("{}: {} x {} pixels, at most {} of a side are supported", name, size.width, size.height,
                                kMostSide));
  if (static_cast<std::uint64_t>(size.height) * static_cast<std::uint64_t>(size.width) > kMostPixels)
    throw DataError(fmt::format("{}: {} x {} pixels, at most 2^28 are supported", name, size.width, size.height));
}

void check_enough_bytes(std::string_view name, ImageSize size, std::size_t file_bytes) {
  constexpr std::uint64_t kUsualPixels = std::uint64_t{1} << 24, kMostOfByte = std::uint64_t{1} << 16;
  const auto pixels = static_cast<std::uint64_t>(size.height * size.width);
  if (pixels > kUsualPixels && pixels / kMostOfByte > file_bytes)
    throw DataError(
        fmt::format("{}: {} bytes are too few for {} x {} pixels", name, file_bytes, size.width, size.height));
}

void convert_picture(const Picture& in, const PixelBox& box, std::int64_t channels, Image& out) {
  if (in.bits == 32) throw DataError("its values are float, not 0 to 255: data.range: stored keeps them");
  out.reshape(box.size, channels);
  const std::size_t values = static_cast<std::size_t>(box.size.width) * channels_of(in.layout);
  std::vector<std::uint8_t> narrow(in.bits == 16 ? values : 0);
  for (std::int64_t y = 0; y < box.size.height; ++y) {
    const std::uint8_t* row = in.bytes.data() + static_cast<std::size_t>(box.top + y) * in.row_bytes() +
                              static_cast<std::size_t>(box.left) * in.pixel_bytes();
    if (in.bits == 16) {
      for (std::size_t i = 0; i < values; ++i) {
        std::uint16_t value;
        std::memcpy(&value, row + i * sizeof value, sizeof value);
        narrow[i] = to_byte(value);
      }
      row = narrow.data();
    }
    convert_pixels(in.layout, row, channels, out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes(),
                   box.size.width);
  }
}

void convert_values(const Picture& in, const PixelBox& box, const PixelForm& form, Image& out) {
  out.reshape(box.size, form.channels * static_cast<std::int64_t>(sizeof(float)));
  if (in.bits == 8) return convert_values_of<std::uint8_t>(in, box, form, 255.0f, out);
  if (in.bits == 16) return convert_values_of<std::uint16_t>(in, box, form, 65535.0f, out);
  convert_values_of<float>(in, box, form, 1.0f, out);
}

void flatten(const Image& rgba, const Background& background, std::int64_t channels, Image& out) {
  out.reshape(rgba.size, channels);
  const std::uint8_t* in = rgba.pixels.data();
  std::uint8_t* to = out.pixels.data();
  for (std::size_t i = 0; i < rgba.pixels.size(); i += 4, in += 4, to += channels) {
    const int alpha = in[3];
    std::array<std::uint8_t, 3> rgb;
    for (std::size_t c = 0; c < 3; ++c)
      rgb[c] = static_cast<std::uint8_t>(over_255(in[c] * alpha + background[c] * (255 - alpha)));
    if (channels == 1)
      to[0] = grey_of(rgb[0], rgb[1], rgb[2]);
    else
      std::memcpy(to, rgb.data(), rgb.size());
  }
}

}  // namespace bantam
