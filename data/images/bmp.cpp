// BMP files: Windows' and OS/2's headers, 1 to 32 bits a pixel, run lengths, bit fields, rows from either end.
#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/images/picture.h"

namespace bantam {
namespace {

[[noreturn]] void fail_bmp(std::string_view why) { throw DataError(fmt::format("BMP: {}", why)); }

enum Compression : std::uint32_t { kNone = 0, kRuns8 = 1, kRuns4 = 2, kFields = 3, kAlphaFields = 6 };

/// Numbers of little-endian bytes.
struct Bytes {
  std::span<const std::byte> file;

  std::uint8_t byte(std::size_t at) const {
    if (at >= file.size()) fail_bmp("the file is cut short");
    return std::to_integer<std::uint8_t>(file[at]);
  }
  std::uint32_t number(std::size_t at, std::size_t bytes) const {
    std::uint32_t value = 0;
    for (std::size_t i = bytes; i > 0; --i) value = value << 8 | byte(at + i - 1);
    return value;
  }
};

struct BmpHeader {
  ImageSize size;
  bool from_top = false;
  int bits = 0;
  std::uint32_t compression = kNone;
  std::array<std::uint32_t, 4> masks{};  ///< red, green, blue, alpha, of 16 and 32 bits
  std::size_t palette = 0, palette_step = 4, colours = 0, pixels = 0;

  bool has_alpha() const { return masks[3] != 0; }
  std::size_t row_bytes() const {
    return (static_cast<std::size_t>(size.width) * static_cast<std::size_t>(bits) + 31) / 32 * 4;
  }
};

BmpHeader read_bmp_header(const Bytes& in) {
  BmpHeader header;
  header.pixels = in.number(10, 4);
  const std::size_t bytes = in.number(14, 4);
  const bool is_os2 = bytes == 12;
  if (!is_os2 && (bytes < 40 || bytes > 124))
    fail_bmp(fmt::format("a header of {} bytes, expected 12 or 40 to 124", bytes));
  const std::size_t step = is_os2 ? 2 : 4;
  header.size.width = in.number(18, step);
  header.size.height = in.number(18 + step, step);
  if (!is_os2) {
    const auto height = static_cast<std::int32_t>(in.number(22, 4));
    header.from_top = height < 0;
    header.size.height = std::abs(std::int64_t{height});
  }
  header.bits = static_cast<int>(in.number(18 + 2 * step + 2, 2));
  if (!is_os2) header.compression = in.number(30, 4);
  check_picture_size("BMP", header.size);
  constexpr std::array kBits = {1, 2, 4, 8, 16, 24, 32};
  if (std::ranges::find(kBits, header.bits) == kBits.end()) fail_bmp(fmt::format("{} bits a pixel", header.bits));
  const std::uint32_t runs = header.bits == 8 ? kRuns8 : header.bits == 4 ? kRuns4 : kNone;
  const bool has_fields = header.compression == kFields || header.compression == kAlphaFields;
  const bool wide = header.bits == 16 || header.bits == 32;
  if (header.compression != kNone && header.compression != runs && !(has_fields && wide))
    fail_bmp(fmt::format("compression {} of {} bits a pixel", header.compression, header.bits));
  header.palette = 14 + bytes;
  header.palette_step = is_os2 ? 3 : 4;
  if (wide && !has_fields)
    header.masks = header.bits == 16 ? std::array<std::uint32_t, 4>{0x7C00, 0x3E0, 0x1F, 0}
                                     : std::array<std::uint32_t, 4>{0xFF0000, 0xFF00, 0xFF, 0};
  if (has_fields) {
    const std::size_t fields = header.compression == kAlphaFields || bytes >= 56 ? 4 : 3;
    for (std::size_t i = 0; i < fields; ++i) header.masks[i] = in.number(54 + 4 * i, 4);
  }
  if (header.bits > 8) return header;
  const std::size_t most = std::size_t{1} << header.bits, said = is_os2 ? 0 : in.number(46, 4);
  header.colours = said == 0 ? most : std::min(said, most);
  return header;
}

/// Numbers of a palette, one a byte, from the top row on.
std::vector<std::uint8_t> read_numbers(const Bytes& in, const BmpHeader& header) {
  const auto width = static_cast<std::size_t>(header.size.width), height = static_cast<std::size_t>(header.size.height);
  std::vector<std::uint8_t> numbers(width * height);
  const auto bits = static_cast<std::size_t>(header.bits), mask = (std::size_t{1} << bits) - 1;
  for (std::size_t y = 0; y < height; ++y) {
    const std::size_t from = header.pixels + y * header.row_bytes();
    std::uint8_t* to = numbers.data() + (header.from_top ? y : height - 1 - y) * width;
    for (std::size_t x = 0; x < width; ++x)
      to[x] = static_cast<std::uint8_t>(in.byte(from + x * bits / 8) >> (8 - bits - x * bits % 8) & mask);
  }
  return numbers;
}

/// The same of run lengths, up to the bitmap's end, or to its last pixel. Pixels that are passed over are 0.
std::vector<std::uint8_t> read_runs(const Bytes& in, const BmpHeader& header) {
  const auto width = static_cast<std::size_t>(header.size.width), height = static_cast<std::size_t>(header.size.height);
  std::vector<std::uint8_t> numbers(width * height);
  const bool four = header.bits == 4;
  std::size_t at = header.pixels, x = 0, y = 0;
  const auto put = [&](std::uint8_t number) {
    if (x < width && y < height) numbers[(header.from_top ? y : height - 1 - y) * width + x] = number;
    ++x;
  };
  const auto nibble = [](std::uint8_t value, std::size_t i) {
    return static_cast<std::uint8_t>(i % 2 == 0 ? value >> 4 : value & 15);
  };
  while (y < height && !(y + 1 == height && x >= width)) {
    const std::uint8_t count = in.byte(at), value = in.byte(at + 1);
    at += 2;
    if (count > 0) {
      for (std::size_t i = 0; i < count; ++i) put(four ? nibble(value, i) : value);
    } else if (value == 0) {
      x = 0;
      ++y;
    } else if (value == 1) {
      break;
    } else if (value == 2) {
      x += in.byte(at);
      y += in.byte(at + 1);
      at += 2;
    } else {
      for (std::size_t i = 0; i < value; ++i) put(four ? nibble(in.byte(at + i / 2), i) : in.byte(at + i));
      const std::size_t bytes = four ? (std::size_t{value} + 1) / 2 : value;
      at += bytes + bytes % 2;
    }
  }
  return numbers;
}

void read_palette_picture(const Bytes& in, const BmpHeader& header, Picture& out) {
  const std::vector<std::uint8_t> numbers =
      header.compression == kNone ? read_numbers(in, header) : read_runs(in, header);
  std::array<std::array<std::uint8_t, 3>, 256> colours{};
  for (std::size_t i = 0; i < header.colours; ++i)
    for (std::size_t c = 0; c < 3; ++c) colours[i][c] = in.byte(header.palette + i * header.palette_step + 2 - c);
  std::uint8_t* to = out.bytes.data();
  for (const std::uint8_t number : numbers) to = std::ranges::copy(colours[number], to).out;
}

void read_colour_picture(const Bytes& in, const BmpHeader& header, Picture& out) {
  const auto width = static_cast<std::size_t>(header.size.width), height = static_cast<std::size_t>(header.size.height);
  const auto bytes = static_cast<std::size_t>(header.bits) / 8;
  const std::size_t channels = channels_of(out.layout);
  for (std::size_t y = 0; y < height; ++y) {
    std::uint8_t* to = out.bytes.data() + (header.from_top ? y : height - 1 - y) * out.row_bytes();
    for (std::size_t x = 0; x < width; ++x, to += channels) {
      const std::uint32_t pixel = in.number(header.pixels + y * header.row_bytes() + x * bytes, bytes);
      for (std::size_t c = 0; c < channels; ++c) {
        if (bytes == 3) {
          to[c] = static_cast<std::uint8_t>(pixel >> (16 - 8 * c));
          continue;
        }
        const std::uint32_t mask = header.masks[c];
        if (mask == 0) continue;
        const int shift = std::countr_zero(mask);
        const std::uint64_t most = mask >> shift;
        to[c] = static_cast<std::uint8_t>(std::uint64_t{(pixel & mask) >> shift} * 255 / most);
      }
    }
  }
}

}  // namespace

ImageHeader bmp_header(std::span<const std::byte> file) {
  const BmpHeader header = read_bmp_header({file});
  return {.type = ImageFileType::bmp, .size = header.size, .channels = header.has_alpha() ? 4 : 3};
}

void decode_bmp(std::span<const std::byte> file, Picture& out) {
  const Bytes in{file};
  const BmpHeader header = read_bmp_header(in);
  // Before memory is allocated; run lengths may pass over pixels.
  if (header.compression != kRuns8 && header.compression != kRuns4 &&
      header.pixels + header.row_bytes() * static_cast<std::size_t>(header.size.height) > file.size() + 3)
    fail_bmp("the file is cut short");
  check_enough_bytes("BMP", header.size, file.size());
  out.reshape(header.size, header.has_alpha() ? PixelLayout::rgba : PixelLayout::rgb, 8);
  if (header.bits <= 8)
    read_palette_picture(in, header, out);
  else
    read_colour_picture(in, header, out);
}

}  // namespace bantam
