// Orientation of a photograph, as EXIF or XMP say it: read from a file's bytes, and applied to pixels.
#pragma once

#include <cstddef>
#include <span>

#include "bantam/data/images/image.h"

namespace bantam {

/// A file's metadata that may say its orientation; empty spans: it has none.
struct OrientationMetadata {
  std::span<const std::byte> exif = {};  ///< a TIFF header and its directories, with or without "Exif\0\0" before it
  std::span<const std::byte> xmp = {};   ///< XML
};

/// 1 to 8: EXIF's tag 274 of type SHORT or LONG, or, where EXIF has none, XMP's tiff:Orientation; 1 where neither
/// says one, or an impossible one. As Pillow's ImageOps.exif_transpose.
int orientation_of(const OrientationMetadata& metadata);

/// Reads the orientation in a JPEG's APP1 segments, wherever they stand before the first scan.
int jpeg_orientation(std::span<const std::byte> jpeg);

/// Reads a PNG's eXIf chunk, ImageMagick's "Raw profile type exif" or XMP, before or after the pixels.
int png_orientation(std::span<const std::byte> png);

/// Whether rows of the upright image are columns as stored.
inline bool is_transposed(int orientation) { return orientation >= 5; }

/// The size of the upright image, and of the stored one of an upright size.
ImageSize oriented(ImageSize size, int orientation);

/// The part of an image of size `stored` that `upright`, a part of the upright image, shows.
PixelBox stored_box(const PixelBox& upright, ImageSize stored, int orientation);

/// Writes the upright image to `out`, another object.
void orient(const Image& in, int orientation, Image& out);

}  // namespace bantam
