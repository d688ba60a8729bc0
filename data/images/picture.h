// Picture: all pixels of a file as it stores them; and the formats whose files are decoded whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "bantam/data/images/channels.h"
#include "bantam/data/images/decode.h"

namespace bantam {

/// Rows of pixels of interleaved channels, in the stored orientation.
struct Picture {
  ImageSize size;
  PixelLayout layout = PixelLayout::rgb;
  int bits = 8;  ///< of a channel: 8; 16, of the machine's order; 32: float
  std::vector<std::uint8_t> bytes;

  std::size_t pixel_bytes() const { return channels_of(layout) * static_cast<std::size_t>(bits / 8); }
  std::size_t row_bytes() const { return static_cast<std::size_t>(size.width) * pixel_bytes(); }
  void reshape(ImageSize to, PixelLayout to_layout, int to_bits) {
    size = to;
    layout = to_layout;
    bits = to_bits;
    bytes.resize(static_cast<std::size_t>(size.height) * row_bytes());
  }
};

/// Throws DataError for images that are empty, or larger than kMostPixels and kMostSide allow. `name`: the type's.
void check_picture_size(std::string_view name, ImageSize size);

/// Throws DataError for a file of a few bytes that says that it has more than 2^24 pixels, before memory is allocated
/// for them: formats without a best ratio of compression still need a byte for 2^16 pixels of one colour.
void check_enough_bytes(std::string_view name, ImageSize size, std::size_t file_bytes);

/// Each pair: what a file says before its pixels are decoded (extents as stored), and its pixels. All throw DataError,
/// also for files cut short.
ImageHeader webp_header(std::span<const std::byte> file);
void decode_webp(std::span<const std::byte> file, Picture& out);  ///< of an animation the first picture
ImageHeader gif_header(std::span<const std::byte> file);
void decode_gif(std::span<const std::byte> file, Picture& out);  ///< the first picture, on the file's canvas
ImageHeader bmp_header(std::span<const std::byte> file);
void decode_bmp(std::span<const std::byte> file, Picture& out);
ImageHeader tiff_header(std::span<const std::byte> file);
void decode_tiff(std::span<const std::byte> file, Picture& out);  ///< the first page
ImageHeader pnm_header(std::span<const std::byte> file);
void decode_pnm(std::span<const std::byte> file, Picture& out);

/// `box` of a picture with 1, 3 or 4 channels of 8 bits, as decode_image says. Throws DataError for float values.
void convert_picture(const Picture& in, const PixelBox& box, std::int64_t channels, Image& out);

/// `box` of a picture as float32 values, not scaled; alpha where there is none is the greatest value of its type. Over
/// `background` (0 to 255, scaled to that type) where that is given and alpha is not asked for.
void convert_values(const Picture& in, const PixelBox& box, const PixelForm& form, Image& out);

/// Writes `rgba` over a background, as its alpha says, with 1 or 3 channels: (c · a + b · (255 - a)) / 255, rounded.
void flatten(const Image& rgba, const Background& background, std::int64_t channels, Image& out);

}  // namespace bantam
