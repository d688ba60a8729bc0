#include "bantam/data/images/orientation.h"

#include <cstring>
#include <string_view>

namespace bantam {
namespace {

constexpr std::string_view kExif{"Exif\0\0", 6};
constexpr std::uint32_t kOrientationTag = 0x0112, kShortType = 3;

bool rows_reversed(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}
bool columns_reversed(int orientation) {
  return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

/// Numbers of 2 or 4 bytes; 0 beyond the end.
struct Numbers {
  std::span<const std::byte> bytes;
  bool little = false;

  std::uint32_t at(std::size_t position, std::size_t size) const {
    if (position > bytes.size() || size > bytes.size() - position) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value = value << 8 | std::to_integer<std::uint32_t>(bytes[position + (little ? size - 1 - i : i)]);
    return value;
  }
};

/// Of a TIFF header and its first directory.
int orientation_of_tiff(std::span<const std::byte> tiff) {
  if (tiff.size() < 8) return 1;
  const Numbers numbers{tiff, tiff[0] == std::byte{'I'}};
  const std::size_t directory = numbers.at(4, 4);
  const std::uint32_t entries = numbers.at(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > tiff.size()) return 1;
    if (numbers.at(entry, 2) != kOrientationTag || numbers.at(entry + 2, 2) != kShortType) continue;
    const auto value = static_cast<int>(numbers.at(entry + 8, 2));
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

}  // namespace

int exif_orientation(std::span<const std::byte> jpeg) {
  const Numbers numbers{jpeg};
  for (std::size_t at = 2; at + 4 <= jpeg.size();) {
    const std::uint32_t marker = numbers.at(at, 2), length = numbers.at(at + 2, 2);
    if (marker == 0xFFFF) {  // a fill byte
      ++at;
      continue;
    }
    // Anything but a segment of its own length, or the start of a scan: there is no EXIF after it.
    if (marker < 0xFFC0 || marker == 0xFFDA || length < 2 || at + 2 + length > jpeg.size()) return 1;
    const auto segment = jpeg.subspan(at + 4, length - 2);
    if (marker == 0xFFE1 && segment.size() > kExif.size() &&
        std::memcmp(segment.data(), kExif.data(), kExif.size()) == 0)
      return orientation_of_tiff(segment.subspan(kExif.size()));
    at += 2 + length;
  }
  return 1;
}

ImageSize oriented(ImageSize size, int orientation) {
  return is_transposed(orientation) ? ImageSize{size.width, size.height} : size;
}

PixelBox stored_box(const PixelBox& upright, ImageSize stored, int orientation) {
  PixelBox box = upright;
  if (is_transposed(orientation)) box = {upright.left, upright.top, {upright.size.width, upright.size.height}};
  if (rows_reversed(orientation)) box.top = stored.height - box.top - box.size.height;
  if (columns_reversed(orientation)) box.left = stored.width - box.left - box.size.width;
  return box;
}

void orient(const Image& in, int orientation, Image& out) {
  out.reshape(oriented(in.size, orientation), in.channels);
  const auto channels = static_cast<std::size_t>(in.channels);
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t y = 0; y < out.size.height; ++y)
    for (std::int64_t x = 0; x < out.size.width; ++x, to += channels) {
      const PixelBox from = stored_box({y, x, {1, 1}}, in.size, orientation);
      std::memcpy(to, in.pixels.data() + static_cast<std::size_t>(from.top * in.size.width + from.left) * channels,
                  channels);
    }
}

}  // namespace bantam
