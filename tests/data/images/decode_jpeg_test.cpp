// JPEG files of every kind to pixels, upright; damaged ones to errors.
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/data/images/decode.h"
#include "bantam/data/images/orientation.h"
#include "tests/data/images/image_files.h"
#include "tests/data/images/pillow_values.h"
#include "tests/data/support.h"

namespace bantam::decode_jpeg_test {
namespace {

using namespace testing;

Image decoded(const FileBytes& file, std::int64_t channels) {
  Image image;
  decode_image(file, channels, image);
  return image;
}

TEST(DecodeJpeg, AsPillow) {
  for (const DecodedValues& values : kDecodedValues) {
    const FileBytes file = file_of_digits(values.file);
    const Image rgb = image_of_digits(values.size, 3, values.rgb);
    // 1: another release of libjpeg may round its inverse transform otherwise. CMYK is converted after that.
    EXPECT_LE(difference_of(decoded(file, 3), rgb).most, 1) << values.name;
    EXPECT_LE(difference_of(decoded(file, 1), image_of_digits(values.size, 1, values.grey)).most, 1) << values.name;
    EXPECT_EQ(read_image_header(file).size, values.size) << values.name;
  }
}

TEST(DecodeJpeg, EncodersOptions) {
  const Image image = smooth_image({61, 83}, 3);
  for (const int across : {1, 2, 4})
    for (const int down : {1, 2})
      for (const bool progressive : {false, true})
        for (const int restarts : {0, 3}) {
          const JpegKind kind{.quality = 95,
                              .chroma_across = across,
                              .chroma_down = down,
                              .progressive = progressive,
                              .restart_interval = restarts};
          // The mean error of quality 95 on a smooth picture with a little noise, whose chroma is averaged.
          EXPECT_LT(difference_of(decoded(write_jpeg(image, kind), 3), image).mean, 5)
              << across << " x " << down << (progressive ? ", progressive" : "");
        }
  EXPECT_LT(difference_of(decoded(write_jpeg(image, {.quality = 95, .arithmetic = true}), 3), image).mean, 5);
}

TEST(DecodeJpeg, ChannelsAskedFor) {
  const Image image = smooth_image({20, 30}, 3);
  const FileBytes file = write_jpeg(image);
  const Image rgb = decoded(file, 3), rgba = decoded(file, 4), grey = decoded(file, 1);
  for (std::size_t i = 0; i < 600; ++i) {
    for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(rgba.pixels[4 * i + c], rgb.pixels[3 * i + c]);
    ASSERT_EQ(rgba.pixels[4 * i + 3], 255);
    const std::uint8_t* p = &rgb.pixels[3 * i];
    ASSERT_EQ(grey.pixels[i], (19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 32768) >> 16);
  }
  EXPECT_EQ(read_image_header(file).channels, 3);

  const FileBytes grey_file = write_jpeg(smooth_image({20, 30}, 1));
  const Image stored = decoded(grey_file, 1), as_rgb = decoded(grey_file, 3);
  for (std::size_t i = 0; i < 600; ++i)
    for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(as_rgb.pixels[3 * i + c], stored.pixels[i]);
  EXPECT_EQ(read_image_header(grey_file).channels, 1);
  EXPECT_THROW(decoded(file, 2), ShapeError);
}

TEST(DecodeJpeg, FourInks) {
  // Stored inverted: 255 is no ink. Pixels of one colour, which quality 100 keeps.
  struct Ink {
    std::uint8_t stored[4], rgb[3];
  };
  for (const Ink& ink : {Ink{{255, 255, 255, 255}, {255, 255, 255}}, Ink{{0, 255, 255, 255}, {0, 255, 255}},
                         Ink{{255, 255, 255, 0}, {0, 0, 0}}, Ink{{128, 64, 200, 128}, {64, 32, 100}}})
    for (const bool ycck : {false, true}) {
      Image image;
      image.reshape({16, 16}, 4);
      for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = ink.stored[i % 4];
      const FileBytes file = write_jpeg(image, {.quality = 100, .ycck = ycck});
      const Image rgb = decoded(file, 3);
      for (std::size_t i = 0; i < rgb.pixels.size(); ++i) ASSERT_NEAR(rgb.pixels[i], ink.rgb[i % 3], 2) << ycck;
      EXPECT_EQ(decoded(file, 1).channels, 1);
      EXPECT_EQ(decoded(file, 4).pixels[3], 255);
      EXPECT_EQ(read_image_header(file).channels, 3);
    }
}

/// Rows of letters, each a square of 16 pixels of one grey: "AB" or "AB/CD".
Image letters(const std::string& text) {
  const auto columns = static_cast<std::int64_t>(std::min(text.find('/'), text.size()));
  const auto rows = static_cast<std::int64_t>(text.size() + 1) / (columns + 1);
  Image image;
  image.reshape({rows * 16, columns * 16}, 1);
  for (std::int64_t y = 0; y < rows * 16; ++y)
    for (std::int64_t x = 0; x < columns * 16; ++x)
      image.pixels[static_cast<std::size_t>(y * columns * 16 + x)] =
          static_cast<std::uint8_t>((text[static_cast<std::size_t>(y / 16 * (columns + 1) + x / 16)] - 'A') * 40 + 20);
  return image;
}

TEST(DecodeJpeg, AllOrientations) {
  // What a camera stores of the scene ABC/DEF, as EXIF 2.3 (tag 0x0112) names the place of its first row and column.
  const std::string stored[] = {"ABC/DEF",  "CBA/FED",  "FED/CBA",  "DEF/ABC",
                                "AD/BE/CF", "CF/BE/AD", "FC/EB/DA", "DA/EB/FC"};
  const Image scene = letters("ABC/DEF");
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool big_endian : {false, true}) {
      const FileBytes file = write_jpeg(letters(stored[orientation - 1]),
                                        {.quality = 100, .orientation = orientation, .big_endian_exif = big_endian});
      const ImageHeader header = read_image_header(file);
      EXPECT_EQ(header.orientation, orientation);
      EXPECT_EQ(header.size, scene.size) << orientation;
      EXPECT_LE(difference_of(decoded(file, 1), scene).most, 1) << orientation;
      // A window that holds B's right half and C, at its own size.
      Image scratch, part;
      decode_sampled(file, 1, {0, 24, {16, 24}, {16, 24}}, scratch, part);
      for (std::int64_t i = 0; i < 16 * 24; ++i)
        ASSERT_NEAR(part.pixels[static_cast<std::size_t>(i)], i % 24 < 8 ? 60 : 100, 1) << orientation;
    }
  EXPECT_EQ(read_image_header(write_jpeg(scene, {.orientation = 9})).orientation, 1) << "there is no such one";
}

TEST(DecodeJpeg, WindowsOfOrientedImages) {
  const Image image = noise_image({37, 54}, 3);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    Image upright, again;
    orient(image, orientation, upright);
    const PixelBox box{5, 7, {11, 9}};
    const PixelBox from = stored_box(box, image.size, orientation);
    Image part;
    part.reshape(from.size, 3);
    for (std::int64_t y = 0; y < from.size.height; ++y)
      for (std::int64_t x = 0; x < from.size.width * 3; ++x)
        part.pixels[static_cast<std::size_t>(y * from.size.width * 3 + x)] =
            image.pixels[static_cast<std::size_t>(((from.top + y) * 54 + from.left) * 3 + x)];
    orient(part, orientation, again);
    ASSERT_EQ(again.size, box.size);
    for (std::int64_t y = 0; y < 11; ++y)
      for (std::int64_t x = 0; x < 27; ++x)
        ASSERT_EQ(again.pixels[static_cast<std::size_t>(y * 27 + x)],
                  upright.pixels[static_cast<std::size_t>(((5 + y) * upright.size.width + 7) * 3 + x)])
            << orientation;
  }
}

TEST(DecodeJpeg, FilesCutShort) {
  for (const bool progressive : {false, true}) {
    const FileBytes file = write_jpeg(smooth_image({80, 60}, 3), {.progressive = progressive});
    for (std::size_t bytes = 0; bytes + 2 < file.size(); bytes += 7) {
      Image image;
      EXPECT_THROW(decode_image(std::span(file).first(bytes), 3, image), DataError) << bytes << " of " << file.size();
    }
  }
}

TEST(DecodeJpeg, HarmlessExtras) {
  FileBytes file = write_jpeg(smooth_image({32, 32}, 3));
  const Image image = decoded(file, 3);
  file.insert(file.end() - 2, 3, std::byte{0});  // before the end's marker
  file.insert(file.end(), 100, std::byte{7});    // and after it
  EXPECT_EQ(decoded(file, 3).pixels, image.pixels);
}

TEST(DecodeJpeg, Refused) {
  const auto message = [](const FileBytes& file) {
    Image image;
    return message_of<DataError>([&] { decode_image(file, 3, image); });
  };
  EXPECT_CONTAINS(message({}), "an empty file");
  EXPECT_CONTAINS(message(FileBytes(10, std::byte{'G'})), "file: it starts with 47 47 47 47");
  // A small file that says it is large: the frame header is FF C0 length precision height width.
  FileBytes file = write_jpeg(smooth_image({16, 16}, 3));
  std::size_t frame = 2;
  while (file[frame] != std::byte{0xFF} || file[frame + 1] != std::byte{0xC0}) ++frame;
  const auto set_size = [&](unsigned height, unsigned width) {
    for (const auto& [at, value] : {std::pair{5, height >> 8}, {6, height}, {7, width >> 8}, {8, width}})
      file[frame + static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
  };
  set_size(5000, 6000);
  EXPECT_CONTAINS(message(file), "are too few for 6000 x 5000 pixels");
  set_size(65500, 65500);
  EXPECT_CONTAINS(message(file), "65500 x 65500 pixels, at most 2^28");
}

/// Without the segments of one marker, FF `marker`.
FileBytes without(const FileBytes& file, std::byte marker) {
  FileBytes rest(file.begin(), file.begin() + 2);
  std::size_t at = 2;
  while (file[at + 1] != std::byte{0xDA}) {
    const std::size_t bytes =
        2 + std::to_integer<std::size_t>(file[at + 2]) * 256 + std::to_integer<std::size_t>(file[at + 3]);
    if (file[at + 1] != marker)
      rest.insert(rest.end(), file.begin() + static_cast<std::ptrdiff_t>(at),
                  file.begin() + static_cast<std::ptrdiff_t>(at + bytes));
    at += bytes;
  }
  rest.insert(rest.end(), file.begin() + static_cast<std::ptrdiff_t>(at), file.end());
  return rest;
}

TEST(DecodeJpeg, NothingIsKeptOfEarlierFiles) {
  // A file without Huffman tables has the standard's, which the encoder used; one without quantisation tables is an
  // error: neither has those of the file decoded before.
  const FileBytes file = write_jpeg(smooth_image({32, 32}, 1));
  const Image expected = decoded(file, 1);
  decoded(write_jpeg(noise_image({64, 64}, 3), {.quality = 20, .progressive = true}), 3);
  EXPECT_EQ(decoded(without(file, std::byte{0xC4}), 1).pixels, expected.pixels);
  EXPECT_THROW(decoded(without(file, std::byte{0xDB}), 1), DataError);
}

}  // namespace
}  // namespace bantam::decode_jpeg_test
