// PNG files of pixels, for pages that show what the network sees.
#pragma once

#include <string>

#include "bantam/data/images/image.h"

namespace bantam {

/// The bytes of a PNG file of an image of 1 (grey), 3 (RGB) or 4 (RGBA) channels. Throws ShapeError for another number
/// of channels and for an image without pixels.
std::string encode_png(const Image& image);

}  // namespace bantam
