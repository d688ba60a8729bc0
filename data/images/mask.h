// StoredMask: the pixels of a mask file as they are stored, numbers or colours.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bantam/data/formats/mask_values.h"
#include "bantam/data/images/image.h"

namespace bantam {

struct StoredMask {
  ImageSize size;
  bool is_colour = false;              ///< `pixels` are red, green and blue; else `numbers` are the pixels
  std::vector<std::uint16_t> numbers;  ///< grey values, or numbers of a palette's entries
  std::vector<std::uint8_t> pixels;
  /// Colours of the numbers, where the file has a palette, or grey values of fewer than 8 bits.
  std::vector<std::array<std::uint8_t, 3>> palette;
  bool is_lossy = false;  ///< a JPEG: values are near those that were drawn

  std::size_t count() const { return static_cast<std::size_t>(size.height * size.width); }
};

/// Decodes a mask file of any image format; transparency is dropped. Throws DataError.
void decode_stored_mask(std::span<const std::byte> file, StoredMask& out);

/// Writes the class number of each pixel. Throws DataError that names `field`, the first pixel that is no class, and
/// the keys of `data.masks` that would read it.
void read_classes(const StoredMask& stored, const MaskReading& reading, const std::string& field, Image& out);

}  // namespace bantam
