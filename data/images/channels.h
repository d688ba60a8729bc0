// Rows of pixels between the channels that a file has and those that are asked for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bantam {

/// Interleaved channels as libjpeg and libpng write them. Of `cmyk` values are inverted, as Adobe writes them.
enum class PixelLayout : std::uint8_t { grey, grey_alpha, rgb, rgba, cmyk };

std::size_t channels_of(PixelLayout layout);

/// The weights of R, G and B in grey, of 2^16: ITU-R 601's.
inline std::uint8_t grey_of(int r, int g, int b) {
  return static_cast<std::uint8_t>((19595 * r + 38470 * g + 7471 * b + (1 << 15)) >> 16);
}

/// Writes `count` pixels with 1 (grey), 3 (RGB) or 4 (RGBA) channels. Without an alpha channel alpha is 255.
void convert_pixels(PixelLayout layout, const std::uint8_t* in, std::int64_t channels, std::uint8_t* out,
                    std::int64_t count);

}  // namespace bantam
