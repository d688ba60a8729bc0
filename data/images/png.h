// PNG files by libpng: the header, and the pixels of a rectangle.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bantam/data/images/decode.h"
#include "bantam/data/images/mask.h"
#include "bantam/data/images/picture.h"

namespace bantam {

/// One file, decoded once. The bytes outlive it. Everything throws DataError.
class PngDecoder {
 public:
  /// Reads the chunks before the pixels.
  explicit PngDecoder(std::span<const std::byte> file);
  ~PngDecoder();
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  /// Extents as stored, not those of the upright image.
  ImageHeader stored_header() const;
  /// Writes `box`, in the stored orientation, with 1, 3 or 4 channels of 8 bits. Called once, as the other reads are.
  void read(const PixelBox& box, std::int64_t channels, Image& out);
  /// The same as stored: 16 bits stay 16, fewer become 8, palettes colours.
  void read_picture(const PixelBox& box, Picture& out);
  /// Writes grey values, numbers of palette entries, or colours of 8 bits, without transparency.
  void read_stored(StoredMask& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bantam
