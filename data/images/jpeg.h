// JPEG files by libjpeg-turbo: the header, and the pixels of a rectangle.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bantam/data/images/decode.h"

namespace bantam {

/// One file, decoded once. The bytes outlive it. Everything throws DataError.
class JpegDecoder {
 public:
  /// Reads the header.
  explicit JpegDecoder(std::span<const std::byte> file);
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Extents as stored, not those of the upright image. Channels: 1 or 3 (also of CMYK).
  ImageHeader stored_header() const;
  /// Whether other decoders, on other hardware, read this form too: 8 bits, Huffman codes, grey or Y'CbCr of chroma
  /// sampling 4:4:4, 4:2:2, 4:4:0 or 4:2:0, a header that libjpeg has no warning about.
  bool has_common_form() const;
  /// Whether all pixels come in one scan, as in most files that are not progressive.
  bool has_one_scan() const;
  /// The image's extents at 1 / `denominator` (1, 2, 4 or 8).
  ImageSize reduced_size(int denominator) const;
  /// Writes `box` of the image at 1 / `denominator`, in the stored orientation: the same values as of the whole
  /// image's decoding. Called once.
  void read(const PixelBox& box, int denominator, std::int64_t channels, Image& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bantam
