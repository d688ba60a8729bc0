// TIFF files by libtiff: the first page.
#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <tiffio.h>

#include "bantam/base/error.h"
#include "bantam/data/images/orientation.h"
#include "bantam/data/images/picture.h"

namespace bantam {
namespace {

/// Limits one allocation of libtiff's own; a strip or tile is at most as large as an image.
constexpr tmsize_t kMostLibraryBytes = tmsize_t{1} << 31;

/// A file that is open, and what libtiff has said about it.
class OpenTiff {
 public:
  explicit OpenTiff(std::span<const std::byte> file) : file_(file) {
    const std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions*)> options(TIFFOpenOptionsAlloc(),
                                                                               TIFFOpenOptionsFree);
    TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMostLibraryBytes);
    TIFFOpenOptionsSetErrorHandlerExtR(options.get(), note_error, this);
    TIFFOpenOptionsSetWarningHandlerExtR(
        options.get(), [](TIFF*, void*, const char*, const char*, va_list) { return 1; }, nullptr);
    // "m": no mapping of the file, which is memory already.
    tiff_ = TIFFClientOpenExt("TIFF", "rm", this, read, write, seek, close, size, nullptr, nullptr, options.get());
    if (tiff_ == nullptr) fail();
  }
  ~OpenTiff() { TIFFClose(tiff_); }
  OpenTiff(const OpenTiff&) = delete;
  OpenTiff& operator=(const OpenTiff&) = delete;

  operator TIFF*() const { return tiff_; }
  [[noreturn]] void fail() const {
    throw DataError(fmt::format("TIFF: {}", error_.empty() ? "the file is damaged" : error_));
  }
  void check(bool works) const {
    if (!works) fail();
  }
  template <class T>
  T field(ttag_t tag, T otherwise) const {
    T value = otherwise;
    return TIFFGetFieldDefaulted(tiff_, tag, &value) == 1 ? value : otherwise;
  }
  bool has_error() const { return !error_.empty(); }

 private:
  static OpenTiff& of(thandle_t handle) { return *static_cast<OpenTiff*>(handle); }
  static int note_error(TIFF*, void* self, const char*, const char* format, va_list values) {
    auto& error = static_cast<OpenTiff*>(self)->error_;
    if (!error.empty()) return 1;
    std::array<char, 256> text{};
    std::vsnprintf(text.data(), text.size(), format, values);
    error = text.data();
    return 1;
  }
  static tmsize_t read(thandle_t handle, void* to, tmsize_t bytes) {
    OpenTiff& self = of(handle);
    const std::size_t left = self.file_.size() - std::min(self.at_, self.file_.size());
    const std::size_t count = std::min(left, static_cast<std::size_t>(std::max<tmsize_t>(bytes, 0)));
    if (count > 0) std::memcpy(to, self.file_.data() + self.at_, count);
    self.at_ += count;
    return static_cast<tmsize_t>(count);
  }
  static tmsize_t write(thandle_t, void*, tmsize_t) { return 0; }
  static toff_t seek(thandle_t handle, toff_t to, int from) {
    OpenTiff& self = of(handle);
    const toff_t base = from == SEEK_CUR ? self.at_ : from == SEEK_END ? self.file_.size() : 0;
    self.at_ = base + to;
    return self.at_;
  }
  static int close(thandle_t) { return 0; }
  static toff_t size(thandle_t handle) { return of(handle).file_.size(); }

  std::span<const std::byte> file_;
  std::size_t at_ = 0;
  std::string error_;
  TIFF* tiff_ = nullptr;
};

/// The first page as its tags describe it.
struct Page {
  ImageSize size;
  std::uint16_t samples = 1, bits = 1, kind = 0, format = SAMPLEFORMAT_UINT, planes = PLANARCONFIG_CONTIG;
  std::uint16_t compression = COMPRESSION_NONE;
  bool has_alpha = false;
  int orientation = 1;

  bool is_float() const { return format == SAMPLEFORMAT_IEEEFP; }
  /// Whether rows are read as they are; others are libtiff's own conversion to RGBA.
  bool is_plain() const {
    const bool known = kind == PHOTOMETRIC_MINISBLACK || kind == PHOTOMETRIC_MINISWHITE || kind == PHOTOMETRIC_RGB ||
                       (kind == PHOTOMETRIC_PALETTE && bits == 8 && samples == 1);
    const std::uint16_t colours = kind == PHOTOMETRIC_RGB ? 3 : 1;
    const bool whole_bytes = is_float() ? bits == 32 : bits == 8 || bits == 16;
    return known && whole_bytes && planes == PLANARCONFIG_CONTIG && samples >= colours;
  }
  PixelLayout layout() const {
    if (kind == PHOTOMETRIC_PALETTE) return PixelLayout::rgb;
    if (!is_plain()) return has_alpha ? PixelLayout::rgba : PixelLayout::rgb;
    if (kind == PHOTOMETRIC_RGB) return has_alpha ? PixelLayout::rgba : PixelLayout::rgb;
    return has_alpha ? PixelLayout::grey_alpha : PixelLayout::grey;
  }
  int picture_bits() const { return is_plain() ? bits : 8; }
};

Page read_page(const OpenTiff& tiff) {
  Page page;
  page.size = {tiff.field<std::uint32_t>(TIFFTAG_IMAGELENGTH, 0), tiff.field<std::uint32_t>(TIFFTAG_IMAGEWIDTH, 0)};
  check_picture_size("TIFF", page.size);
  std::uint8_t* version = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_DNGVERSION, &version) == 1)
    throw DataError("is a camera's raw image (DNG), which is not read: convert it to JPEG or PNG");
  page.samples = tiff.field<std::uint16_t>(TIFFTAG_SAMPLESPERPIXEL, 1);
  page.bits = tiff.field<std::uint16_t>(TIFFTAG_BITSPERSAMPLE, 1);
  page.format = tiff.field<std::uint16_t>(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
  page.planes = tiff.field<std::uint16_t>(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  page.compression = tiff.field<std::uint16_t>(TIFFTAG_COMPRESSION, COMPRESSION_NONE);
  page.kind = tiff.field<std::uint16_t>(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
  if (page.kind == PHOTOMETRIC_YCBCR && page.compression == COMPRESSION_JPEG &&
      TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB) == 1)
    page.kind = PHOTOMETRIC_RGB;
  std::uint16_t extra = 0;
  const std::uint16_t* kinds = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &extra, &kinds) == 1 && extra > 0)
    page.has_alpha = kinds[0] == EXTRASAMPLE_UNASSALPHA || kinds[0] == EXTRASAMPLE_ASSOCALPHA;
  if (page.format == SAMPLEFORMAT_INT) throw DataError("TIFF: its values are signed, expected unsigned ones or float");
  const bool is_colour = page.kind != PHOTOMETRIC_MINISBLACK && page.kind != PHOTOMETRIC_MINISWHITE;
  if (!is_colour && page.samples > (page.has_alpha ? 2 : 1))
    throw DataError(
        fmt::format("TIFF: {} channels that are neither colours nor alpha; images have 1, 3 or 4 channels "
                    "(arrays of more: data.format: npy)",
                    page.samples));
  const auto oriented = tiff.field<std::uint16_t>(TIFFTAG_ORIENTATION, 1);
  page.orientation = oriented >= 1 && oriented <= 8 ? oriented : 1;
  if (oriented == 1) {
    std::uint32_t bytes = 0;
    const std::byte* xmp = nullptr;
    if (TIFFGetField(tiff, TIFFTAG_XMLPACKET, &bytes, &xmp) == 1)
      page.orientation = orientation_of({.xmp = {xmp, bytes}});
  }
  return page;
}

/// Calls `use(y, left, row, pixels)` for rows of strips, and for those of each tile.
template <class Use>
void for_rows(const OpenTiff& tiff, const Page& page, const Use& use) {
  const std::size_t pixel_bytes = std::size_t{page.samples} * page.bits / 8;
  const std::int64_t height = page.size.height, width = page.size.width;
  if (TIFFIsTiled(tiff) == 0) {
    const auto bytes = static_cast<std::size_t>(TIFFScanlineSize64(tiff));
    if (bytes < pixel_bytes * static_cast<std::size_t>(width)) throw DataError("TIFF: rows are too short");
    std::vector<std::uint8_t> row(bytes);
    for (std::int64_t y = 0; y < height; ++y) {
      tiff.check(TIFFReadScanline(tiff, row.data(), static_cast<std::uint32_t>(y)) == 1);
      use(y, 0, row.data(), width);
    }
    return;
  }
  const auto tile_width = std::int64_t{tiff.field<std::uint32_t>(TIFFTAG_TILEWIDTH, 0)};
  const auto tile_height = std::int64_t{tiff.field<std::uint32_t>(TIFFTAG_TILELENGTH, 0)};
  const auto row_bytes = static_cast<std::size_t>(TIFFTileRowSize64(tiff));
  const auto bytes = static_cast<std::size_t>(TIFFTileSize64(tiff));
  if (row_bytes < pixel_bytes * static_cast<std::size_t>(tile_width) ||
      bytes < row_bytes * static_cast<std::size_t>(tile_height))
    throw DataError("TIFF: tiles are too small");
  std::vector<std::uint8_t> tile(bytes);
  for (std::int64_t top = 0; top < height; top += tile_height)
    for (std::int64_t left = 0; left < width; left += tile_width) {
      tiff.check(
          TIFFReadTile(tiff, tile.data(), static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(top), 0, 0) > 0);
      for (std::int64_t y = top; y < std::min(height, top + tile_height); ++y)
        use(y, left, tile.data() + static_cast<std::size_t>(y - top) * row_bytes, std::min(tile_width, width - left));
    }
}

/// White is 0 in such files.
void invert(std::uint8_t* row, std::size_t values, int bits) {
  const std::size_t bytes = values * static_cast<std::size_t>(bits) / 8;
  if (bits != 32)
    for (std::size_t i = 0; i < bytes; ++i) row[i] = static_cast<std::uint8_t>(~row[i]);
}

void read_plain(const OpenTiff& tiff, const Page& page, Picture& out) {
  std::array<std::uint16_t*, 3> palette{};
  if (page.kind == PHOTOMETRIC_PALETTE)
    tiff.check(TIFFGetField(tiff, TIFFTAG_COLORMAP, &palette[0], &palette[1], &palette[2]) == 1);
  // Some programs write 8-bit values into a palette of 16 bits.
  const bool is_narrow = page.kind == PHOTOMETRIC_PALETTE && std::ranges::all_of(palette, [](const std::uint16_t* c) {
                           return std::all_of(c, c + 256, [](std::uint16_t v) { return v < 256; });
                         });
  const std::size_t in_bytes = std::size_t{page.samples} * page.bits / 8, out_bytes = out.pixel_bytes();
  for_rows(tiff, page, [&](std::int64_t y, std::int64_t left, const std::uint8_t* in, std::int64_t pixels) {
    std::uint8_t* row =
        out.bytes.data() + static_cast<std::size_t>(y) * out.row_bytes() + static_cast<std::size_t>(left) * out_bytes;
    std::uint8_t* to = row;
    for (std::int64_t x = 0; x < pixels; ++x, in += in_bytes, to += out_bytes) {
      if (page.kind == PHOTOMETRIC_PALETTE)
        for (std::size_t c = 0; c < 3; ++c)
          to[c] = static_cast<std::uint8_t>(is_narrow ? palette[c][*in] : palette[c][*in] >> 8);
      else
        std::memcpy(to, in, out_bytes);  // what follows are samples of other meanings
    }
    if (page.kind == PHOTOMETRIC_MINISWHITE)
      invert(row, static_cast<std::size_t>(pixels) * channels_of(out.layout), out.bits);
  });
}

/// By libtiff: bits, chroma, inks, planes.
void read_rgba(const OpenTiff& tiff, const Page& page, Picture& out) {
  std::array<char, 1024> why{};
  if (TIFFRGBAImageOK(tiff, why.data()) == 0) throw DataError(fmt::format("TIFF: {}", why.data()));
  std::vector<std::uint32_t> pixels(static_cast<std::size_t>(page.size.height * page.size.width));
  tiff.check(TIFFSetField(tiff, TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT) == 1);  // turned with all other types
  tiff.check(TIFFReadRGBAImageOriented(tiff, static_cast<std::uint32_t>(page.size.width),
                                       static_cast<std::uint32_t>(page.size.height), pixels.data(), ORIENTATION_TOPLEFT,
                                       1) == 1 &&
             !tiff.has_error());
  std::uint8_t* to = out.bytes.data();
  const std::size_t channels = channels_of(out.layout);
  for (const std::uint32_t pixel : pixels)
    for (std::size_t c = 0; c < channels; ++c) *to++ = static_cast<std::uint8_t>(pixel >> 8 * c);
}

/// Refuses sizes that the file's bytes cannot have, and those that cost far more than the image: decompressed are rows
/// of all their samples, and whole tiles.
void refuse_impossible_sizes(const OpenTiff& tiff, const Page& page, std::size_t file_bytes) {
  const auto pixels = static_cast<std::uint64_t>(page.size.height * page.size.width);
  const std::uint64_t bytes = pixels * page.samples * page.bits / 8;
  // Deflate's best ratio is 1032 : 1; fax codes may say more with less.
  if (page.bits >= 8 && page.compression != COMPRESSION_ZSTD && page.compression != COMPRESSION_LZMA &&
      page.compression != COMPRESSION_WEBP && bytes / 1032 > file_bytes)
    throw DataError(
        fmt::format("TIFF: {} bytes are too few for {} x {} pixels", file_bytes, page.size.width, page.size.height));
  if (bytes > static_cast<std::uint64_t>(kMostLibraryBytes))
    throw DataError(fmt::format("TIFF: {} x {} pixels of {} samples, at most 2^31 bytes are supported", page.size.width,
                                page.size.height, page.samples));
  if (TIFFIsTiled(tiff) == 0) return;
  const std::uint64_t width = tiff.field<std::uint32_t>(TIFFTAG_TILEWIDTH, 0),
                      height = tiff.field<std::uint32_t>(TIFFTAG_TILELENGTH, 0);
  check_picture_size("TIFF", {static_cast<std::int64_t>(height), static_cast<std::int64_t>(width)});
  constexpr std::uint64_t kUsualPixels = std::uint64_t{1} << 24, kMostTimes = 4;
  const std::uint64_t across = (static_cast<std::uint64_t>(page.size.width) + width - 1) / width,
                      down = (static_cast<std::uint64_t>(page.size.height) + height - 1) / height;
  if (across * width * down * height > kUsualPixels + kMostTimes * pixels)
    throw DataError(fmt::format("TIFF: tiles of {} x {} pixels are too large for an image of {} x {}", width, height,
                                page.size.width, page.size.height));
}

}  // namespace

ImageHeader tiff_header(std::span<const std::byte> file) {
  const OpenTiff tiff(file);
  const Page page = read_page(tiff);
  return {.type = ImageFileType::tiff,
          .size = page.size,
          .channels = static_cast<std::int64_t>(channels_of(page.layout())),
          .bits = page.picture_bits(),
          .orientation = page.orientation};
}

void decode_tiff(std::span<const std::byte> file, Picture& out) {
  const OpenTiff tiff(file);
  const Page page = read_page(tiff);
  refuse_impossible_sizes(tiff, page, file.size());
  out.reshape(page.size, page.layout(), page.picture_bits());
  if (page.is_plain())
    read_plain(tiff, page, out);
  else
    read_rgba(tiff, page, out);
}

}  // namespace bantam
