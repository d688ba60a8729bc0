// By libpng's simplified interface, into memory.
#include "bantam/data/images/encode.h"

#include <fmt/format.h>
#include <png.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

png_uint_32 format_of(const Image& image) {
  switch (image.channels) {
    case 1:
      return PNG_FORMAT_GRAY;
    case 3:
      return PNG_FORMAT_RGB;
    case 4:
      return PNG_FORMAT_RGBA;
    default:
      throw ShapeError(fmt::format("a PNG of {} channels: it has 1, 3 or 4", image.channels));
  }
}

}  // namespace

std::string encode_png(const Image& image) {
  if (image.pixels.empty()) throw ShapeError("a PNG needs pixels");
  png_image facts{};
  facts.version = PNG_IMAGE_VERSION;
  facts.width = static_cast<png_uint_32>(image.size.width);
  facts.height = static_cast<png_uint_32>(image.size.height);
  facts.format = format_of(image);
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(facts);
  std::string file(bytes, '\0');
  if (png_image_write_to_memory(&facts, file.data(), &bytes, 0, image.pixels.data(), 0, nullptr) == 0)
    throw DataError(fmt::format("a PNG cannot be written: {}", facts.message));
  file.resize(bytes);
  return file;
}

}  // namespace bantam
