// Netpbm's portable bitmaps, graymaps and pixmaps, P1 to P6: text or bytes, up to 16 bits.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/images/picture.h"

namespace bantam {
namespace {

[[noreturn]] void fail_pnm(std::string_view why) { throw DataError(fmt::format("PNM: {}", why)); }

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// A file's text from some place on.
struct Text {
  std::string_view rest;

  void skip_space_and_comments() {
    while (!rest.empty() && (is_space(rest[0]) || rest[0] == '#'))
      rest.remove_prefix(rest[0] == '#' ? std::min(rest.find('\n'), rest.size() - 1) + 1 : 1);
  }
  std::uint32_t number() {
    skip_space_and_comments();
    std::uint32_t value = 0;
    std::size_t digits = 0;
    for (; digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9'; ++digits) {
      value = value * 10 + static_cast<std::uint32_t>(rest[digits] - '0');
      if (value > 100'000'000) fail_pnm("a number is too large");
    }
    if (digits == 0) fail_pnm(rest.empty() ? "the file is cut short" : "expected a number");
    rest.remove_prefix(digits);
    return value;
  }
  /// P1's pixels need no space between them.
  std::uint32_t bit() {
    skip_space_and_comments();
    if (rest.empty()) fail_pnm("the file is cut short");
    if (rest[0] != '0' && rest[0] != '1') fail_pnm("expected 0 or 1");
    const bool is_one = rest[0] == '1';
    rest.remove_prefix(1);
    return is_one ? 1 : 0;
  }
};

struct PnmHeader {
  int kind = 0;  ///< P1 to P6
  ImageSize size;
  std::uint32_t most = 1;
  Text pixels;

  bool is_text() const { return kind <= 3; }
  bool is_bits() const { return kind == 1 || kind == 4; }
  PixelLayout layout() const { return kind == 3 || kind == 6 ? PixelLayout::rgb : PixelLayout::grey; }
  int bits() const { return most > 255 ? 16 : 8; }
};

PnmHeader read_pnm_header(std::span<const std::byte> file) {
  Text text{{reinterpret_cast<const char*>(file.data()), file.size()}};
  PnmHeader header{.kind = text.rest[1] - '0'};
  text.rest.remove_prefix(2);
  header.size.width = text.number();
  header.size.height = text.number();
  check_picture_size("PNM", header.size);
  if (!header.is_bits()) header.most = text.number();
  if (header.most < 1 || header.most > 65535)
    fail_pnm(fmt::format("a greatest value of {}, expected 1 to 65535", header.most));
  if (!header.is_text()) {
    if (text.rest.empty() || !is_space(text.rest[0])) fail_pnm("expected white space before the pixels");
    text.rest.remove_prefix(1);
  }
  header.pixels = text;
  return header;
}

}  // namespace

ImageHeader pnm_header(std::span<const std::byte> file) {
  const PnmHeader header = read_pnm_header(file);
  return {.type = ImageFileType::pnm,
          .size = header.size,
          .channels = static_cast<std::int64_t>(channels_of(header.layout())),
          .bits = header.bits()};
}

void decode_pnm(std::span<const std::byte> file, Picture& out) {
  PnmHeader header = read_pnm_header(file);
  const auto height = static_cast<std::size_t>(header.size.height);
  const std::size_t values = static_cast<std::size_t>(header.size.width) * channels_of(header.layout());
  const std::size_t stored = header.is_text() ? 1 : header.bits() == 16 ? 2 : 1;
  const std::size_t row_bytes = header.kind == 4 ? (values + 7) / 8 : values * stored;
  if (header.pixels.rest.size() < row_bytes * height) fail_pnm("the file is cut short");
  out.reshape(header.size, header.layout(), header.bits());
  std::uint8_t* to = out.bytes.data();
  const std::uint32_t full = header.bits() == 16 ? 65535 : 255;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(header.pixels.rest.data());
  for (std::size_t y = 0; y < height; ++y, bytes += row_bytes)
    for (std::size_t i = 0; i < values; ++i) {
      std::uint32_t value = 0;
      if (header.kind == 1)
        value = 1 - header.pixels.bit();  // 1 is black
      else if (header.kind == 4)
        value = 1 - (bytes[i / 8] >> (7 - i % 8) & 1U);
      else if (header.is_text())
        value = header.pixels.number();
      else
        value = stored == 2 ? static_cast<std::uint32_t>(bytes[2 * i] << 8 | bytes[2 * i + 1]) : bytes[i];
      // The greatest value is white, whatever it is: rounded to nearest.
      const auto scaled = static_cast<std::uint32_t>(
          (std::uint64_t{std::min(value, header.most)} * full * 2 + header.most) / (std::uint64_t{header.most} * 2));
      if (header.bits() == 8) {
        *to++ = static_cast<std::uint8_t>(scaled);
      } else {
        const auto wide = static_cast<std::uint16_t>(scaled);
        std::memcpy(to, &wide, sizeof wide);
        to += sizeof wide;
      }
    }
}

}  // namespace bantam
