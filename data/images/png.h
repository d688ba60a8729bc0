// PNG files by libpng: the header, and the pixels of a rectangle.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bantam/data/images/decode.h"

namespace bantam {

/// One file, decoded once. The bytes outlive it. Everything throws DataError.
class PngDecoder {
 public:
  /// Reads the chunks before the pixels.
  explicit PngDecoder(std::span<const std::byte> file);
  ~PngDecoder();
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  ImageHeader header() const;
  /// Writes `box` with 1, 3 or 4 channels of 8 bits. Called once, as `read_numbers` is.
  void read(const PixelBox& box, std::int64_t channels, Image& out);
  /// Writes the values of one channel, or the numbers of palette entries, as stored.
  void read_numbers(Image& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bantam
