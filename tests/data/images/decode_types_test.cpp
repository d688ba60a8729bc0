// WebP, GIF, BMP, TIFF and PNM files to Pillow's pixels; what turns an image; transparency over a background; values as
// stored; files of other types by their names.
#include <algorithm>
#include <cstring>
#include <string_view>

#include <gtest/gtest.h>
#include <png.h>

#include "bantam/base/error.h"
#include "bantam/data/images/decode.h"
#include "tests/data/images/image_files.h"
#include "tests/data/images/image_type_values.h"
#include "tests/data/support.h"

namespace bantam::decode_types_test {
namespace {

using namespace testing;

Image decoded(std::span<const std::byte> file, const PixelForm& form) {
  Image image;
  decode_image(file, form, image);
  return image;
}

std::vector<float> values_of(const Image& image) {
  std::vector<float> values(image.pixels.size() / sizeof(float));
  std::memcpy(values.data(), image.pixels.data(), image.pixels.size());
  return values;
}

PixelForm as_stored(std::int64_t channels) {
  PixelForm form(channels);
  form.as_stored = true;
  return form;
}

FileBytes bytes_of(std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

/// Whether the type that a name begins with has a library in this build.
bool is_built_in(std::string_view name) {
  for (const ImageFileType type : {ImageFileType::webp, ImageFileType::gif, ImageFileType::tiff}) {
    std::string lower(to_string(type));
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (name.starts_with(lower)) return is_read(type);
  }
  return true;
}

TEST(DecodeTypes, AsPillow) {
  for (const ImageTypeValues& values : kImageTypeValues) {
    if (!is_built_in(values.name)) continue;
    const FileBytes file = file_of_digits(values.file);
    const Image rgba = image_of_digits(values.size, 4, values.rgba);
    // Releases of libjpeg may round its inverse transform otherwise.
    const int most = std::string_view(values.name).find("jpeg") == std::string_view::npos ? 0 : 1;
    ASSERT_EQ(read_image_header(file).size, values.size) << values.name;
    EXPECT_LE(difference_of(decoded(file, 4), rgba).most, most) << values.name;
    const Image rgb = decoded(file, 3);
    for (std::size_t i = 0; i < rgba.pixels.size(); ++i)
      if (i % 4 != 3) {
        ASSERT_NEAR(rgb.pixels[i / 4 * 3 + i % 4], rgba.pixels[i], most) << values.name;
      }
  }
}

TEST(DecodeTypes, WindowsAreThoseOfTheWholeImage) {
  for (const ImageTypeValues& values : kImageTypeValues) {
    if (!is_built_in(values.name) || values.size.height < 3 || values.size.width < 3) continue;
    const FileBytes file = file_of_digits(values.file);
    const Image whole = decoded(file, 3);
    const ImageSize window{values.size.height - 2, values.size.width - 2};
    Image scratch, part;
    decode_sampled(file, 3, {.top = 1, .left = 2, .window = window, .size = window}, scratch, part);
    for (std::int64_t y = 0; y < window.height; ++y)
      for (std::int64_t x = 0; x < window.width * 3; ++x)
        ASSERT_EQ(part.pixels[static_cast<std::size_t>(y * window.width * 3 + x)],
                  whole.pixels[static_cast<std::size_t>(((y + 1) * values.size.width + 2) * 3 + x)])
            << values.name;
  }
}

TEST(DecodeTypes, FilesCutShort) {
  for (const ImageTypeValues& values : kImageTypeValues) {
    const std::string_view name = values.name;
    if (!is_built_in(name) || name.starts_with("png") || name.starts_with("jpeg")) continue;
    if (name.ends_with("text")) continue;  // half a number is a number
    const FileBytes file = file_of_digits(values.file);
    for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
      Image image;
      try {  // what comes after the pixels of the first picture may be missing
        decode_image(std::span(file).first(bytes), 4, image);
        ASSERT_EQ(difference_of(image, decoded(file, 4)).most, 0) << name << ", " << bytes << " of " << file.size();
      } catch (const DataError& error) {
        EXPECT_GT(std::string(error.what()).size(), 10u);
      }
    }
  }
}

TEST(DecodeTypes, TransparencyOverABackground) {
  Image image;
  image.reshape({1, 4}, 4);
  image.pixels = {10, 20, 30, 0, 10, 20, 30, 255, 10, 20, 30, 128, 0, 0, 0, 51};
  const FileBytes file = write_png(image);
  EXPECT_EQ(decoded(file, 3).pixels, (std::vector<std::uint8_t>{10, 20, 30, 10, 20, 30, 10, 20, 30, 0, 0, 0}));
  PixelForm white(3);
  white.background = Background{255, 255, 255};
  // Pillow: Image.new("RGB", size, "white").paste(image, mask=image)
  EXPECT_EQ(decoded(file, white).pixels,
            (std::vector<std::uint8_t>{255, 255, 255, 10, 20, 30, 132, 137, 142, 204, 204, 204}));
  white.channels = 1;
  EXPECT_EQ(decoded(file, white).pixels, (std::vector<std::uint8_t>{255, 18, 136, 204}));
  white.channels = 4;  // alpha is asked for
  EXPECT_EQ(decoded(file, white).pixels, image.pixels);
  PixelForm values = as_stored(3);
  values.background = Background{255, 0, 0};
  EXPECT_EQ(values_of(decoded(file, values))[0], 255);
  EXPECT_EQ(values_of(decoded(file, values))[1], 0);
  EXPECT_EQ(values_of(decoded(file, values))[3], 10);
  EXPECT_TRUE(read_image_header(file).has_alpha());
}

TEST(DecodeTypes, ValuesAsStored) {
  const std::vector<std::uint8_t> rows = {0x0F, 0xFF, 0x00, 0x01, 0xFF, 0xFE, 0x12, 0x34};  // big-endian
  const FileBytes png = write_png({2, 2}, rows, {.type = PNG_COLOR_TYPE_GRAY, .bits = 16});
  EXPECT_EQ(values_of(decoded(png, as_stored(1))), (std::vector<float>{0x0FFF, 1, 0xFFFE, 0x1234}));
  EXPECT_EQ(values_of(decoded(png, as_stored(3))).size(), 12u);
  EXPECT_EQ(decoded(png, 1).pixels, (std::vector<std::uint8_t>{16, 0, 255, 18}));  // v / 257, rounded
  EXPECT_EQ(read_image_header(png).bits, 16);
  const FileBytes pgm = bytes_of(std::string_view("P5 2 1 65535\n\x01\x02\xFF\xFF", 17));
  EXPECT_EQ(values_of(decoded(pgm, as_stored(1))), (std::vector<float>{0x0102, 0xFFFF}));
  const FileBytes jpeg = write_jpeg(smooth_image({16, 24}, 3));
  const std::vector<float> values = values_of(decoded(jpeg, as_stored(3)));
  const Image bytes = decoded(jpeg, 3);
  EXPECT_TRUE(std::ranges::equal(values, bytes.pixels));
  // Bilinear in float: the mean of two pixels is not rounded.
  Image scratch, out;
  decode_sampled(png, as_stored(1), {.window = {2, 2}, .size = {1, 1}}, scratch, out);
  EXPECT_NEAR(values_of(out)[0], (0x0FFF + 1 + 0xFFFE + 0x1234) / 4.0, 0.1);
}

TEST(DecodeTypes, OtherFilesByTheirNames) {
  const auto message = [](std::string_view start) {
    FileBytes file = bytes_of(start);
    file.resize(200);
    Image image;
    return message_of<DataError>([&] { decode_image(file, 3, image); });
  };
  using namespace std::string_view_literals;
  EXPECT_CONTAINS(message("\0\0\0\x18"sv
                          "ftypheic\0\0\0\0"sv),
                  "is a HEIC image, which is not read: convert it to JPEG");
  EXPECT_CONTAINS(message("\0\0\0\x1C"sv
                          "ftypavif"sv),
                  "is an AVIF image");
  EXPECT_CONTAINS(message("\0\0\0\x20"sv
                          "ftypisom"sv),
                  "is a video");
  EXPECT_CONTAINS(message("\xFF\x0A"sv), "is a JPEG XL image");
  EXPECT_CONTAINS(message("\0\0\0\x0CjP  "sv), "is a JPEG 2000 image");
  EXPECT_CONTAINS(message("8BPS"sv), "is a Photoshop document");
  EXPECT_CONTAINS(message("\n<!DOCTYPE html><html>"sv), "is a web page (HTML)");
  EXPECT_CONTAINS(message("<?xml version=\"1.0\"?>\n<svg>"sv), "is an SVG drawing");
  EXPECT_CONTAINS(message("version https://git-lfs.github.com/spec/v1"sv), "is a pointer of Git LFS");
  EXPECT_CONTAINS(message("II*\0\x10\0\0\0CR"sv), "is a camera's raw image (CR2)");
  EXPECT_CONTAINS(message("\x89XYZ"sv), "is no JPEG, PNG, ");
}

TEST(DecodeTypes, Suffixes) {
  for (const char* name : {"a.jpg", "A.JPG", "a.b.JPeG", "a.jpe", "a.jfif", "a.png", "a.bmp", "a.ppm", "a.pgm"})
    EXPECT_TRUE(has_image_suffix(name)) << name;
  for (const char* name : {"a.txt", "a.heic", "jpg", "a.jpg.txt", "", "a."})
    EXPECT_FALSE(has_image_suffix(name)) << name;
  EXPECT_EQ(has_image_suffix("a.webp"), is_read(ImageFileType::webp));
  EXPECT_EQ(unsupported_image_suffix("IMG_1.HEIC"), ".heic");
  EXPECT_EQ(unsupported_image_suffix("a.svg"), ".svg");
  EXPECT_EQ(unsupported_image_suffix("a.jpg"), "");
  EXPECT_EQ(unsupported_image_suffix("notes.txt"), "");
}

/// The parameters after the components of the first scan: spectral selection and approximation.
FileBytes with_zero_scan(FileBytes file) {
  for (std::size_t at = 2; at + 4 < file.size();) {
    const std::size_t bytes =
        std::to_integer<std::size_t>(file[at + 2]) * 256 + std::to_integer<std::size_t>(file[at + 3]);
    if (file[at + 1] == std::byte{0xDA}) {
      std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(at + 2 + bytes - 3), 3, std::byte{0});
      return file;
    }
    at += 2 + bytes;
  }
  return file;
}

TEST(DecodeTypes, JpegFilesThatLibjpegWarnsOf) {
  for (const bool progressive : {false, true}) {
    FileBytes file = write_jpeg(smooth_image({40, 60}, 3), {.progressive = progressive});
    const Image whole = decoded(file, 3);
    if (!progressive) {
      EXPECT_EQ(decoded(with_zero_scan(file), 3).pixels, whole.pixels) << "as Samsung's selfies";
    }
    file.resize(file.size() - 1);
    EXPECT_EQ(decoded(file, 3).pixels, whole.pixels) << "half an end marker";
    file.resize(file.size() - 1);
    EXPECT_EQ(decoded(file, 3).pixels, whole.pixels) << "no end marker";
    file.resize(file.size() - 4);
    EXPECT_THROW(decoded(file, 3), DataError) << "a block is missing";
  }
  // A progressive file that ends after a scan that is not the last.
  FileBytes file = write_jpeg(smooth_image({40, 60}, 3), {.progressive = true});
  for (std::size_t at = file.size() - 2; at > 0; --at)
    if (file[at] == std::byte{0xFF} && file[at + 1] == std::byte{0xDA}) {
      file.resize(at);
      break;
    }
  EXPECT_CONTAINS(message_of<DataError>([&] { decoded(file, 3); }), "scans are missing");
}

}  // namespace
}  // namespace bantam::decode_types_test
