#include "bantam/data/images/channels.h"

#include <cstring>

namespace bantam {
namespace {

struct Colour {
  int r = 0, g = 0, b = 0, alpha = 255;
};

/// a · b / 255, rounded to nearest.
int scaled(int a, int b) {
  const int t = a * b + 128;
  return (t + (t >> 8)) >> 8;
}

template <PixelLayout layout>
Colour colour_at(const std::uint8_t* in) {
  if constexpr (layout == PixelLayout::grey) return {in[0], in[0], in[0]};
  if constexpr (layout == PixelLayout::grey_alpha) return {in[0], in[0], in[0], in[1]};
  if constexpr (layout == PixelLayout::rgb) return {in[0], in[1], in[2]};
  if constexpr (layout == PixelLayout::rgba) return {in[0], in[1], in[2], in[3]};
  // The stored values are 255 - ink: light that remains.
  if constexpr (layout == PixelLayout::cmyk)
    return {in[3] - scaled(255 - in[0], in[3]), in[3] - scaled(255 - in[1], in[3]), in[3] - scaled(255 - in[2], in[3])};
}

template <PixelLayout layout, int channels>
void convert(const std::uint8_t* in, std::uint8_t* out, std::int64_t count) {
  constexpr bool stored_grey = layout == PixelLayout::grey || layout == PixelLayout::grey_alpha;
  const auto step = static_cast<std::int64_t>(channels_of(layout));
  for (std::int64_t i = 0; i < count; ++i, in += step, out += channels) {
    const Colour colour = colour_at<layout>(in);
    if constexpr (channels == 1) {
      out[0] = stored_grey ? in[0] : grey_of(colour.r, colour.g, colour.b);
    } else {
      out[0] = static_cast<std::uint8_t>(colour.r);
      out[1] = static_cast<std::uint8_t>(colour.g);
      out[2] = static_cast<std::uint8_t>(colour.b);
      if constexpr (channels == 4) out[3] = static_cast<std::uint8_t>(colour.alpha);
    }
  }
}

template <PixelLayout layout>
void convert_from(const std::uint8_t* in, std::int64_t channels, std::uint8_t* out, std::int64_t count) {
  if (channels_of(layout) == static_cast<std::size_t>(channels) && layout != PixelLayout::cmyk)
    std::memcpy(out, in, static_cast<std::size_t>(count * channels));
  else if (channels == 1)
    convert<layout, 1>(in, out, count);
  else if (channels == 3)
    convert<layout, 3>(in, out, count);
  else
    convert<layout, 4>(in, out, count);
}

}  // namespace

std::size_t channels_of(PixelLayout layout) {
  switch (layout) {
    case PixelLayout::grey:
      return 1;
    case PixelLayout::grey_alpha:
      return 2;
    case PixelLayout::rgb:
      return 3;
    default:
      return 4;
  }
}

void convert_pixels(PixelLayout layout, const std::uint8_t* in, std::int64_t channels, std::uint8_t* out,
                    std::int64_t count) {
  switch (layout) {
    case PixelLayout::grey:
      return convert_from<PixelLayout::grey>(in, channels, out, count);
    case PixelLayout::grey_alpha:
      return convert_from<PixelLayout::grey_alpha>(in, channels, out, count);
    case PixelLayout::rgb:
      return convert_from<PixelLayout::rgb>(in, channels, out, count);
    case PixelLayout::rgba:
      return convert_from<PixelLayout::rgba>(in, channels, out, count);
    case PixelLayout::cmyk:
      return convert_from<PixelLayout::cmyk>(in, channels, out, count);
  }
}

}  // namespace bantam
