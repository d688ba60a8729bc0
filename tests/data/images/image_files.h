// Test support: JPEG and PNG files of every kind, written by libjpeg and libpng.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "bantam/data/images/image.h"

namespace bantam::testing {

using FileBytes = std::vector<std::byte>;

/// Pixels of a slow pattern and a little noise, much like a photograph to an encoder.
Image smooth_image(ImageSize size, std::int64_t channels, std::uint32_t seed = 1);
/// Pixels without any order.
Image noise_image(ImageSize size, std::int64_t channels, std::uint32_t seed = 1);

/// As tests/oracles/images.py makes them.
Image pattern_image(ImageSize size, std::int64_t channels);

/// "0aff…" as bytes, and as an image's pixels.
FileBytes file_of_digits(const char* digits);
Image image_of_digits(ImageSize size, std::int64_t channels, const char* digits);

struct JpegKind {
  int quality = 90;
  int chroma_across = 2, chroma_down = 2;  ///< pixels to a chroma value
  bool progressive = false;
  bool arithmetic = false;
  int restart_interval = 0;  ///< in blocks
  int orientation = 0;       ///< EXIF's; 0: no EXIF segment
  bool big_endian_exif = false;
  bool ycck = false;  ///< of four channels: YCCK, else CMYK. Written inverted, as Adobe does
};
/// 1, 3 or 4 (CMYK) channels.
FileBytes write_jpeg(const Image& image, const JpegKind& kind = {});

struct PngKind {
  int type = 0;  ///< PNG_COLOR_TYPE_...
  int bits = 8;
  bool interlaced = false;
  std::vector<std::uint8_t> palette;      ///< r, g, b, ...
  std::vector<std::uint8_t> alpha;        ///< tRNS of a palette
  std::vector<std::uint16_t> clear_grey;  ///< tRNS of grey: one value
};
/// `row_bytes` bytes a row, as the file has them (packed below 8 bits, big-endian above).
FileBytes write_png(ImageSize size, std::span<const std::uint8_t> rows, const PngKind& kind);
/// 8 bits of 1 to 4 channels.
FileBytes write_png(const Image& image, bool interlaced = false);

/// The mean and the largest difference of two images of one size.
struct Difference {
  double mean = 0;
  int most = 0;
};
Difference difference_of(const Image& a, const Image& b);

}  // namespace bantam::testing
