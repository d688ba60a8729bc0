// PNG files of every kind to pixels and to masks; damaged ones to errors.
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include "bantam/base/error.h"
#include "bantam/data/images/decode.h"
#include "tests/cpu_seconds.h"
#include "tests/data/images/image_files.h"
#include "tests/data/support.h"

namespace bantam::decode_png_test {
namespace {

using namespace testing;
using Values = std::vector<std::uint8_t>;

Image decoded(const FileBytes& file, std::int64_t channels) {
  Image image;
  decode_image(file, channels, image);
  return image;
}

Image mask_of(const FileBytes& file) {
  Image mask;
  decode_mask(file, DatasetFacts{}, "labels", mask);
  return mask;
}

TEST(DecodePng, EightBitsInEveryChannelCount) {
  for (const std::int64_t stored : {1, 2, 3, 4})
    for (const bool interlaced : {false, true}) {
      const Image image = noise_image({13, 21}, stored);
      const FileBytes file = write_png(image, interlaced);
      const ImageHeader header = read_image_header(file);
      EXPECT_EQ(header.type, ImageFileType::png);
      EXPECT_EQ(header.channels, stored);
      EXPECT_EQ(header.size, image.size);
      const Image rgba = decoded(file, 4), rgb = decoded(file, 3), grey = decoded(file, 1);
      for (std::size_t i = 0; i < 13 * 21; ++i) {
        const std::uint8_t* p = &image.pixels[i * static_cast<std::size_t>(stored)];
        const bool colour = stored >= 3;
        const Values expected{p[0], p[colour ? 1 : 0], p[colour ? 2 : 0],
                              stored == 2   ? p[1]
                              : stored == 4 ? p[3]
                                            : std::uint8_t{255}};
        for (std::size_t c = 0; c < 4; ++c) ASSERT_EQ(rgba.pixels[4 * i + c], expected[c]) << stored << interlaced;
        for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(rgb.pixels[3 * i + c], expected[c]) << stored << interlaced;
        ASSERT_EQ(grey.pixels[i], colour ? (19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 32768) >> 16 : p[0]);
      }
    }
}

FileBytes chunk(const std::string& type, const FileBytes& bytes) {
  const auto put = [](FileBytes& to, std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) to.push_back(static_cast<std::byte>(value >> shift));
  };
  FileBytes made, named;
  put(made, static_cast<std::uint32_t>(bytes.size()));
  for (const char c : type) named.push_back(static_cast<std::byte>(c));
  named.insert(named.end(), bytes.begin(), bytes.end());
  made.insert(made.end(), named.begin(), named.end());
  put(made, static_cast<std::uint32_t>(
                crc32(0, reinterpret_cast<const Bytef*>(named.data()), static_cast<uInt>(named.size()))));
  return made;
}

FileBytes compressed(std::size_t zeros) {
  const std::vector<Bytef> plain(zeros);
  FileBytes made(compressBound(static_cast<uLong>(zeros)));
  uLongf size = made.size();
  EXPECT_EQ(compress2(reinterpret_cast<Bytef*>(made.data()), &size, plain.data(), static_cast<uLong>(zeros), 9), Z_OK);
  made.resize(size);
  return made;
}

/// A file of 8 x 8 grey pixels with these chunks between its header and its end.
FileBytes png_of(const FileBytes& chunks, bool interlaced) {
  FileBytes file = write_png({8, 8}, Values(64), {.interlaced = interlaced});
  file.resize(33);  // the signature and IHDR
  file.insert(file.end(), chunks.begin(), chunks.end());
  const FileBytes end = chunk("IEND", {});
  file.insert(file.end(), end.begin(), end.end());
  return file;
}

/// libpng would decompress all that follows the last row, a thousand times the file's bytes: 17 MB took 51 s.
TEST(DecodePng, NothingIsDecompressedAfterTheLastRow) {
  const FileBytes rest = chunk("IDAT", compressed(std::size_t{256} << 20));
  for (const bool interlaced : {false, true}) {
    const FileBytes large = png_of(rest, interlaced);
    Image image;
    std::string error;
    EXPECT_LT(cpu_seconds([&] { error = message_of<DataError>([&] { decode_image(large, 1, image); }); }), 0.4)
        << "the rest is 256 MB, which took a second";
    EXPECT_EQ(error, "PNG: its image data go on after its last row");
    EXPECT_EQ(decoded(png_of(chunk("IDAT", compressed(10'000)), interlaced), 1).pixels, Values(64))
        << "a few bytes too many are no harm";
  }
}

/// Metadata that could say an orientation are decompressed once, however many chunks there are.
TEST(DecodePng, TextsAreDecompressedOnce) {
  FileBytes text;
  for (const char c : std::string("XML:com.adobe.xmp\0\0", 19)) text.push_back(static_cast<std::byte>(c));
  const FileBytes zeros = compressed(std::size_t{1} << 20);
  text.insert(text.end(), zeros.begin(), zeros.end());
  const FileBytes one = chunk("zTXt", text), rows = chunk("IDAT", compressed(8 * 9));
  FileBytes chunks;
  for (int i = 0; i < 3000; ++i) chunks.insert(chunks.end(), one.begin(), one.end());
  chunks.insert(chunks.end(), rows.begin(), rows.end());
  const FileBytes file = png_of(chunks, false);
  EXPECT_LT(cpu_seconds([&] { EXPECT_EQ(read_image_header(file).orientation, 1); }), 0.5) << "it was 3 GB of zeros";
}

TEST(DecodePng, FewBits) {
  // One row of eight: 1, 2 and 4 bits are spread to 0 to 255.
  const Values rows[] = {{0b10110001}, {0b00011011, 0b11100100}, {0x01, 0x23, 0xCD, 0xEF}};
  const Values greys[] = {
      {255, 0, 255, 255, 0, 0, 0, 255}, {0, 85, 170, 255, 255, 170, 85, 0}, {0, 17, 34, 51, 204, 221, 238, 255}};
  const Values numbers[] = {{1, 0, 1, 1, 0, 0, 0, 1}, {0, 1, 2, 3, 3, 2, 1, 0}, {0, 1, 2, 3, 12, 13, 14, 15}};
  for (int i = 0; i < 3; ++i)
    for (const bool interlaced : {false, true}) {
      const FileBytes file = write_png({1, 8}, rows[i], {.bits = 1 << i, .interlaced = interlaced});
      EXPECT_EQ(decoded(file, 1).pixels, greys[i]);
      EXPECT_EQ(mask_of(file).pixels, numbers[i]) << "a mask's numbers are not spread";
      EXPECT_EQ(read_image_header(file).bits, 1 << i);
    }
}

TEST(DecodePng, SixteenBits) {
  const std::uint16_t values[] = {0, 128, 129, 256, 257, 32767, 32896, 65535};
  Values row;
  Values expected;
  for (const std::uint16_t value : values) {
    row.push_back(static_cast<std::uint8_t>(value >> 8));
    row.push_back(static_cast<std::uint8_t>(value));
    expected.push_back(static_cast<std::uint8_t>((value + 128) / 257));
  }
  const FileBytes file = write_png({1, 8}, row, {.bits = 16});
  EXPECT_EQ(decoded(file, 1).pixels, expected);
  EXPECT_EQ(read_image_header(file).bits, 16);
  const FileBytes rgb = write_png({1, 2}, std::span(row).first(12), {.type = PNG_COLOR_TYPE_RGB, .bits = 16});
  EXPECT_EQ(decoded(rgb, 3).pixels, Values(expected.begin(), expected.begin() + 6));

  const Values small{0, 3, 0, 200};
  EXPECT_EQ(mask_of(write_png({1, 2}, small, {.bits = 16})).pixels, (Values{3, 200}));
  EXPECT_CONTAINS(message_of<DataError>([&] { mask_of(file); }), "'labels' has the number ");
}

TEST(DecodePng, Palettes) {
  const Values palette{255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7};
  const Values row{0b00011011};
  const PngKind kind{.type = PNG_COLOR_TYPE_PALETTE, .bits = 2, .palette = palette};
  EXPECT_EQ(decoded(write_png({1, 4}, row, kind), 3).pixels, palette);
  EXPECT_EQ(mask_of(write_png({1, 4}, row, kind)).pixels, (Values{0, 1, 2, 3}));
  EXPECT_EQ(read_image_header(write_png({1, 4}, row, kind)).channels, 3);
  PngKind clear = kind;
  clear.alpha = {0, 100};
  const FileBytes file = write_png({1, 4}, row, clear);
  EXPECT_EQ(decoded(file, 4).pixels, (Values{255, 0, 0, 0, 0, 255, 0, 100, 0, 0, 255, 255, 9, 8, 7, 255}));
  EXPECT_EQ(decoded(file, 3).pixels, palette);
  EXPECT_EQ(mask_of(file).pixels, (Values{0, 1, 2, 3})) << "alpha changes no number";
  EXPECT_EQ(read_image_header(file).channels, 4);
}

TEST(DecodePng, OneClearGrey) {
  const FileBytes file = write_png({1, 3}, Values{5, 6, 7}, {.clear_grey = {6}});
  EXPECT_EQ(decoded(file, 4).pixels, (Values{5, 5, 5, 255, 6, 6, 6, 0, 7, 7, 7, 255}));
  EXPECT_EQ(decoded(file, 1).pixels, (Values{5, 6, 7}));
  EXPECT_EQ(mask_of(file).pixels, (Values{5, 6, 7}));
}

TEST(DecodePng, MasksAreOfOneChannel) {
  EXPECT_CONTAINS(message_of<DataError>([] {
                    mask_of(write_png(noise_image({4, 4}, 3)));
                  }),
                  "'labels' has colours, as [");
}

TEST(DecodePng, FilesCutShort) {
  for (const bool interlaced : {false, true}) {
    const FileBytes file = write_png(noise_image({20, 20}, 3), interlaced);
    // The last 12 bytes are the chunk that ends a file, before them the pixels' checksums.
    for (std::size_t bytes = 0; bytes + 20 < file.size(); bytes += 11) {
      Image image;
      EXPECT_THROW(decode_image(std::span(file).first(bytes), 3, image), DataError) << bytes << " of " << file.size();
    }
  }
}

/// Sets width and height in the first chunk, with its checksum.
FileBytes with_size(FileBytes file, std::uint32_t width, std::uint32_t height) {
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) file[at + i] = static_cast<std::byte>(value >> (24 - 8 * i));
  };
  put(16, width);
  put(20, height);
  put(29, static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(file.data()) + 12, 17)));
  return file;
}

TEST(DecodePng, SizesThatCannotBe) {
  const FileBytes file = write_png(noise_image({4, 4}, 3));
  const auto message = [&](std::uint32_t width, std::uint32_t height) {
    return message_of<DataError>([&] { decoded(with_size(file, width, height), 3); });
  };
  EXPECT_CONTAINS(message(10000, 10000), "bytes are too few for 10000 x 10000 pixels");
  EXPECT_CONTAINS(message(1 << 15, 1 << 15), "at most 2^28");
  EXPECT_CONTAINS(message(1, 1 << 16), "1 x 65536 pixels, at most 65535 of a side");
  EXPECT_CONTAINS(message(0x7FFFFFFF, 0x7FFFFFFF), "PNG: ");
  EXPECT_CONTAINS(message(0, 4), "PNG: ");
}

}  // namespace
}  // namespace bantam::decode_png_test
