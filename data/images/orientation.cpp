#include "bantam/data/images/orientation.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zlib.h>

namespace bantam {
namespace {

constexpr std::string_view kExif{"Exif\0\0", 6};
constexpr std::string_view kXmp{"http://ns.adobe.com/xap/1.0/\0", 29};
constexpr std::uint32_t kOrientationTag = 0x0112;
/// TIFF's types SHORT, LONG, SSHORT and SLONG; 0 of others.
constexpr std::size_t bytes_of_type(std::uint32_t type) {
  return type == 3 || type == 8 ? 2 : type == 4 || type == 9 ? 4 : 0;
}

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

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool begins(std::span<const std::byte> bytes, std::string_view with) { return text_of(bytes).starts_with(with); }

/// Reads the tag in a TIFF header's first directory; nothing where that has no such tag.
std::optional<std::uint32_t> orientation_of_exif(std::span<const std::byte> tiff) {
  while (begins(tiff, kExif)) tiff = tiff.subspan(kExif.size());
  if (tiff.size() < 8) return std::nullopt;
  const Numbers numbers{tiff, tiff[0] == std::byte{'I'}};
  const std::size_t directory = numbers.at(4, 4);
  const std::uint32_t entries = numbers.at(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > tiff.size()) return std::nullopt;
    const std::size_t bytes = bytes_of_type(numbers.at(entry + 2, 2));
    if (numbers.at(entry, 2) == kOrientationTag && bytes > 0) return numbers.at(entry + 8, bytes);
  }
  return std::nullopt;
}

/// tiff:Orientation="6", or <tiff:Orientation>6<.
std::optional<std::uint32_t> orientation_of_xmp(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (std::size_t at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at + 1)) {
    std::string_view rest = xmp.substr(at + kName.size());
    if (rest.starts_with("=\"") || rest.starts_with("='"))
      rest.remove_prefix(2);
    else if (rest.starts_with(">"))
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return static_cast<std::uint32_t>(rest[0] - '0');
  }
  return std::nullopt;
}

/// Decompresses a zlib stream, up to a size that no orientation needs; empty where it is damaged.
std::string inflated(std::span<const std::byte> stream) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::string text(kMost, '\0');
  z_stream zlib{};
  if (inflateInit(&zlib) != Z_OK) return {};
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(stream.data()));
  zlib.avail_in = static_cast<uInt>(stream.size());
  zlib.next_out = reinterpret_cast<Bytef*>(text.data());
  zlib.avail_out = static_cast<uInt>(text.size());
  const int status = inflate(&zlib, Z_FINISH);
  text.resize(text.size() - zlib.avail_out);
  inflateEnd(&zlib);
  return status == Z_STREAM_END || status == Z_BUF_ERROR ? text : std::string();
}

/// The bytes of "\nexif\n   123\n4578696600…": three lines, then hexadecimal digits.
std::vector<std::byte> raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  std::vector<std::byte> bytes;
  int digits = 0, value = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) continue;
    value = value * 16 + digit;
    if (++digits % 2 == 0) bytes.push_back(static_cast<std::byte>(std::exchange(value, 0)));
  }
  return bytes;
}

/// A PNG's chunks of text: a keyword, then what its type says.
struct PngText {
  std::string_view keyword;
  std::string text;
};

PngText png_text(std::string_view type, std::span<const std::byte> chunk, std::span<const std::string_view> wanted) {
  const std::string_view all = text_of(chunk);
  const std::size_t end = all.find('\0');
  if (end == std::string_view::npos) return {};
  PngText found{all.substr(0, end), {}};
  // Others, and those that come again, are not looked into: each may be a megabyte, of a few bytes in the file.
  if (std::ranges::find(wanted, found.keyword) == wanted.end()) return {};
  std::span<const std::byte> rest = chunk.subspan(end + 1);
  bool compressed = type == "zTXt";
  if (compressed) {
    rest = rest.subspan(std::min<std::size_t>(rest.size(), 1));  // its method
  } else if (type == "iTXt") {
    compressed = !rest.empty() && rest[0] == std::byte{1};
    rest = rest.subspan(std::min<std::size_t>(rest.size(), 2));
    for (int part = 0; part < 2; ++part) {  // the language, the translated keyword
      const std::size_t zero = text_of(rest).find('\0');
      if (zero == std::string_view::npos) return {};
      rest = rest.subspan(zero + 1);
    }
  }
  found.text = compressed ? inflated(rest) : std::string(text_of(rest));
  return found;
}

}  // namespace

int orientation_of(const OrientationMetadata& metadata) {
  std::optional<std::uint32_t> value = orientation_of_exif(metadata.exif);
  if (!value) value = orientation_of_xmp(text_of(metadata.xmp));
  return value && *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
}

int jpeg_orientation(std::span<const std::byte> jpeg) {
  const Numbers numbers{jpeg};
  OrientationMetadata found;
  std::vector<std::byte> joined;  // EXIF of several segments
  for (std::size_t at = 2; at + 4 <= jpeg.size();) {
    // libjpeg passes over bytes before a marker, and fill bytes.
    if (jpeg[at] != std::byte{0xFF} || jpeg[at + 1] == std::byte{0xFF} || jpeg[at + 1] == std::byte{0}) {
      ++at;
      continue;
    }
    const std::uint32_t marker = numbers.at(at, 2), length = numbers.at(at + 2, 2);
    // After the start of a scan there is no metadata; markers without a length are none of a header.
    if (marker == 0xFFDA || marker == 0xFFD9 || length < 2 || at + 2 + length > jpeg.size()) break;
    const auto segment = jpeg.subspan(at + 4, length - 2);
    if (marker == 0xFFE1 && begins(segment, kExif)) {
      const auto more = segment.subspan(kExif.size());
      if (!found.exif.empty()) {
        if (joined.empty()) joined.assign(found.exif.begin(), found.exif.end());
        joined.insert(joined.end(), more.begin(), more.end());
        found.exif = joined;
      } else {
        found.exif = more;
      }
    } else if (marker == 0xFFE1 && begins(segment, kXmp)) {
      found.xmp = segment.subspan(kXmp.size());
    }
    at += 2 + length;
  }
  return orientation_of(found);
}

int png_orientation(std::span<const std::byte> png) {
  const Numbers numbers{png};
  OrientationMetadata found;
  std::vector<std::byte> profile;
  std::string xmp;
  constexpr std::string_view kProfile = "Raw profile type exif", kXmpText = "XML:com.adobe.xmp";
  std::vector<std::string_view> wanted = {kProfile, kXmpText};
  constexpr std::size_t kAround = 12;  // length, type, checksum
  for (std::size_t at = 8; at + kAround <= png.size();) {
    const std::size_t length = numbers.at(at, 4);
    if (length > png.size() - at - kAround) break;
    const std::string_view type = text_of(png.subspan(at + 4, 4));
    const auto chunk = png.subspan(at + 8, length);
    if (type == "eXIf") {
      found.exif = chunk;
    } else if (type == "tEXt" || type == "zTXt" || type == "iTXt") {
      PngText text = png_text(type, chunk, wanted);
      if (text.keyword == kProfile) profile = raw_profile(text.text);
      if (text.keyword == kXmpText) xmp = std::move(text.text);
      std::erase(wanted, text.keyword);
    }
    at += kAround + length;
  }
  if (found.exif.empty()) found.exif = profile;
  found.xmp = std::as_bytes(std::span(xmp));
  return orientation_of(found);
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
