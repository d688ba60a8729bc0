#include "tests/data/images/image_files.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>

namespace bantam::testing {
namespace {

[[noreturn]] void jpeg_failed(j_common_ptr info) {
  char message[JMSG_LENGTH_MAX];
  info->err->format_message(info, message);
  throw std::runtime_error(message);
}

/// An EXIF segment with one entry before the orientation, so that entries are walked.
std::string exif_of(int orientation, bool big_endian) {
  std::string bytes("Exif\0\0", 6);
  bytes += big_endian ? "MM" : "II";
  const auto number = [&](std::uint32_t value, int size) {
    for (int i = 0; i < size; ++i)
      bytes.push_back(static_cast<char>(value >> 8 * (big_endian ? size - 1 - i : i) & 0xFF));
  };
  number(42, 2);
  number(8, 4);
  number(2, 2);
  for (const std::uint32_t tag : {0x010Fu, 0x0112u}) {
    number(tag, 2);
    number(3, 2);
    number(1, 4);
    number(static_cast<std::uint32_t>(orientation), 2);
    number(0, 2);
  }
  number(0, 4);
  return bytes;
}

void set_kind(jpeg_compress_struct& info, const JpegKind& kind) {
  if (info.input_components == 4) jpeg_set_colorspace(&info, kind.ycck ? JCS_YCCK : JCS_CMYK);
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (info.input_components == 3 || kind.ycck) {
    info.comp_info[0].h_samp_factor = kind.chroma_across;
    info.comp_info[0].v_samp_factor = kind.chroma_down;
    if (kind.ycck) info.comp_info[3].h_samp_factor = kind.chroma_across;
    if (kind.ycck) info.comp_info[3].v_samp_factor = kind.chroma_down;
  }
  info.arith_code = kind.arithmetic ? TRUE : FALSE;
  info.restart_interval = static_cast<unsigned>(kind.restart_interval);
  if (kind.progressive) jpeg_simple_progression(&info);
}

}  // namespace

Image smooth_image(ImageSize size, std::int64_t channels, std::uint32_t seed) {
  Image image;
  image.reshape(size, channels);
  const Image noise = noise_image(size, channels, seed);
  std::size_t at = 0;
  for (std::int64_t y = 0; y < size.height; ++y)
    for (std::int64_t x = 0; x < size.width; ++x)
      for (std::int64_t c = 0; c < channels; ++c, ++at) {
        const double wave = std::sin(0.11 * static_cast<double>(x + seed) + static_cast<double>(c)) +
                            std::cos(0.07 * static_cast<double>(y) - 0.5 * static_cast<double>(c));
        image.pixels[at] = static_cast<std::uint8_t>(120 + 50 * wave + noise.pixels[at] % 16);
      }
  return image;
}

Image noise_image(ImageSize size, std::int64_t channels, std::uint32_t seed) {
  Image image;
  image.reshape(size, channels);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::uint8_t& value : image.pixels) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::uint8_t>(state >> 24);
  }
  return image;
}

Image pattern_image(ImageSize size, std::int64_t channels) {
  Image image;
  image.reshape(size, channels);
  std::size_t at = 0;
  for (std::int64_t y = 0; y < size.height; ++y)
    for (std::int64_t x = 0; x < size.width; ++x)
      for (std::int64_t c = 0; c < channels; ++c)
        image.pixels[at++] = static_cast<std::uint8_t>(x * 37 + y * 91 + c * 53 + x * y * 7);
  return image;
}

FileBytes file_of_digits(const char* digits) {
  FileBytes file(std::strlen(digits) / 2);
  for (std::size_t i = 0; i < file.size(); ++i)
    file[i] = static_cast<std::byte>(std::stoi(std::string(digits + 2 * i, 2), nullptr, 16));
  return file;
}

Image image_of_digits(ImageSize size, std::int64_t channels, const char* digits) {
  Image image;
  image.reshape(size, channels);
  const FileBytes bytes = file_of_digits(digits);
  if (bytes.size() != image.pixels.size()) throw std::runtime_error("digits of another size");
  std::memcpy(image.pixels.data(), bytes.data(), bytes.size());
  return image;
}

FileBytes write_jpeg(const Image& image, const JpegKind& kind) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  errors.error_exit = jpeg_failed;
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &memory, &bytes);
  info.image_width = static_cast<JDIMENSION>(image.size.width);
  info.image_height = static_cast<JDIMENSION>(image.size.height);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : image.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  set_kind(info, kind);
  jpeg_start_compress(&info, TRUE);
  if (kind.orientation != 0) {
    const std::string exif = exif_of(kind.orientation, kind.big_endian_exif);
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.pixels.data()) + info.next_scanline * image.row_bytes();
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(memory);
  FileBytes file(begin, begin + bytes);
  std::free(memory);
  return file;
}

FileBytes write_png(ImageSize size, std::span<const std::uint8_t> rows, const PngKind& kind) {
  png_structp png = png_create_write_struct(
      PNG_LIBPNG_VER_STRING, nullptr, [](png_structp, png_const_charp message) { throw std::runtime_error(message); },
      [](png_structp, png_const_charp) {});
  png_infop info = png_create_info_struct(png);
  FileBytes file;
  png_set_write_fn(
      png, &file,
      [](png_structp of, png_bytep from, png_size_t count) {
        auto& to = *static_cast<FileBytes*>(png_get_io_ptr(of));
        to.insert(to.end(), reinterpret_cast<std::byte*>(from), reinterpret_cast<std::byte*>(from) + count);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(size.width), static_cast<png_uint_32>(size.height), kind.bits,
               kind.type, kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (!kind.palette.empty()) {
    std::vector<png_color> colours(kind.palette.size() / 3);
    std::memcpy(colours.data(), kind.palette.data(), kind.palette.size());
    png_set_PLTE(png, info, colours.data(), static_cast<int>(colours.size()));
  }
  if (!kind.alpha.empty()) png_set_tRNS(png, info, kind.alpha.data(), static_cast<int>(kind.alpha.size()), nullptr);
  if (!kind.clear_grey.empty()) {
    png_color_16 clear{};
    clear.gray = kind.clear_grey[0];
    png_set_tRNS(png, info, nullptr, 0, &clear);
  }
  png_write_info(png, info);
  std::vector<png_bytep> starts;
  for (std::int64_t y = 0; y < size.height; ++y)
    starts.push_back(const_cast<png_bytep>(rows.data()) +
                     static_cast<std::size_t>(y) * (rows.size() / static_cast<std::size_t>(size.height)));
  png_write_image(png, starts.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

FileBytes write_png(const Image& image, bool interlaced) {
  constexpr int kTypes[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGBA};
  return write_png(image.size, image.pixels, {.type = kTypes[image.channels - 1], .interlaced = interlaced});
}

Difference difference_of(const Image& a, const Image& b) {
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.channels, b.channels);
  if (a.pixels.size() != b.pixels.size() || a.pixels.empty()) return {255, 255};
  Difference difference;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) {
    const int apart = std::abs(a.pixels[i] - b.pixels[i]);
    difference.mean += apart;
    difference.most = std::max(difference.most, apart);
  }
  difference.mean /= static_cast<double>(a.pixels.size());
  return difference;
}

}  // namespace bantam::testing
