// PNG files by libpng: the header, and the pixels of a rectangle.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bantam/data/images/decode.h"
#include "bantam/data/images/mask.h"

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
  /// Writes `box` with 1, 3 or 4 channels of 8 bits. Called once, as `read_stored` is.
  void read(const PixelBox& box, std::int64_t channels, Image& out);
  /// Writes grey values, numbers of palette entries, or colours of 8 bits, without transparency.
  void read_stored(StoredMask& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bantam
