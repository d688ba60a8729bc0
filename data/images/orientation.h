// EXIF's orientation of a photograph: read from a JPEG's bytes, and applied to pixels.
#pragma once

#include <cstddef>
#include <span>

#include "bantam/data/images/image.h"

namespace bantam {

/// 1 to 8; 1 where the file says none, or an impossible one.
int exif_orientation(std::span<const std::byte> jpeg);

/// Whether rows of the upright image are columns as stored.
inline bool is_transposed(int orientation) { return orientation >= 5; }

/// The size of the upright image, and of the stored one of an upright size.
ImageSize oriented(ImageSize size, int orientation);

/// The part of an image of size `stored` that `upright`, a part of the upright image, shows.
PixelBox stored_box(const PixelBox& upright, ImageSize stored, int orientation);

/// Writes the upright image to `out`, another object.
void orient(const Image& in, int orientation, Image& out);

}  // namespace bantam
