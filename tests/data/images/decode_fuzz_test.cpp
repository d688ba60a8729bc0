// Mutated files: an error or an image, never a crash, and no more memory than a file of that size may cost.
#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <string_view>

#include <gtest/gtest.h>
#include <zlib.h>

#include "bantam/base/error.h"
#include "bantam/data/images/decode.h"
#include "tests/data/images/image_files.h"
#include "tests/data/images/image_type_values.h"

namespace bantam::decode_fuzz_test {
namespace {

using namespace testing;

constexpr int kMutatedFiles = 2000;

class Mutations {
 public:
  explicit Mutations(std::uint32_t seed) : random_(seed) {}

  std::uint32_t below(std::size_t bound) { return static_cast<std::uint32_t>(random_() % bound); }

  /// One to eight changes: a bit, a byte, a run that is removed, doubled or overwritten, the end cut off.
  FileBytes of(FileBytes file) {
    for (std::uint32_t change = 0, changes = 1 + below(8); change < changes && file.size() > 8; ++change) {
      // Headers decide most: half of the changes are there.
      const std::size_t at = below(2) == 0 ? below(std::min<std::size_t>(file.size(), 300)) : below(file.size());
      const std::size_t run = std::min<std::size_t>(1 + below(20), file.size() - at);
      const auto begin = file.begin() + static_cast<std::ptrdiff_t>(at), end = begin + static_cast<std::ptrdiff_t>(run);
      switch (below(8)) {
        case 0:
          file.erase(begin, end);
          break;
        case 1: {
          const FileBytes copy(begin, end);
          file.insert(begin, copy.begin(), copy.end());
          break;
        }
        case 2:
          std::fill(begin, end, std::byte{0xFF});
          break;
        case 3:
          if (below(4) == 0) file.resize(at);
          break;
        case 4:
          *begin = static_cast<std::byte>(below(256));
          break;
        default:
          *begin ^= static_cast<std::byte>(1u << below(8));
          break;
      }
    }
    return file;
  }

 private:
  std::mt19937 random_;
};

/// Calls everything that reads a file. Returns whether it was decoded.
bool survives(const FileBytes& file, Mutations& random) {
  Image scratch, out;
  bool decoded = false;
  const auto attempt = [&](auto&& work) {
    try {
      work();
      EXPECT_EQ(out.pixels.size(), static_cast<std::size_t>(out.size.height * out.size.width * out.channels));
    } catch (const DataError& error) {
      EXPECT_GT(std::string(error.what()).size(), 5u);
    }
  };
  const std::int64_t channels = std::array{1, 3, 4}[random.below(3)];
  attempt([&] {
    decode_image(file, channels, out);
    decode_image(file, channels, scratch);
    EXPECT_EQ(out.pixels, scratch.pixels) << "pixels that nothing wrote";
    decoded = true;
  });
  attempt([&] { decode_mask(file, DatasetFacts{}, "labels", out); });
  attempt([&] {
    const ImageSize size = read_image_header(file).size;
    Sampling sampling{.top = random.below(static_cast<std::size_t>(size.height)),
                      .left = random.below(static_cast<std::size_t>(size.width))};
    sampling.window = {1 + random.below(static_cast<std::size_t>(size.height - sampling.top)),
                       1 + random.below(static_cast<std::size_t>(size.width - sampling.left))};
    sampling.size = {1 + random.below(40), 1 + random.below(40)};
    decode_sampled(file, channels, sampling, scratch, out);
  });
  return decoded;
}

/// A PNG's chunks with the checksums of their bytes: without them nearly every change is an error before it is used.
FileBytes with_checksums(FileBytes file) {
  const auto byte_at = [&](std::size_t at) { return std::to_integer<std::size_t>(file[at]); };
  for (std::size_t at = 8; at + 12 <= file.size();) {
    const std::size_t length = byte_at(at) << 24 | byte_at(at + 1) << 16 | byte_at(at + 2) << 8 | byte_at(at + 3);
    if (length > file.size() - at - 12) break;
    const auto* bytes = reinterpret_cast<const Bytef*>(file.data() + at + 4);
    const auto sum = static_cast<std::uint32_t>(crc32(0, bytes, static_cast<uInt>(length + 4)));
    at += 8 + length;
    for (std::size_t i = 0; i < 4; ++i, ++at) file[at] = static_cast<std::byte>(sum >> (24 - 8 * i));
  }
  return file;
}

void mutate(const std::vector<FileBytes>& files, std::uint32_t seed,
            const std::function<FileBytes(FileBytes)>& finish) {
  Mutations random(seed);
  int decoded = 0;
  for (int i = 0; i < kMutatedFiles; ++i)
    decoded += survives(finish(random.of(files[static_cast<std::size_t>(i) % files.size()])), random) ? 1 : 0;
  // Some changes are harmless (a pixel's value), most are not: both happened.
  EXPECT_GT(decoded, kMutatedFiles / 50);
  EXPECT_LT(decoded, kMutatedFiles * 9 / 10);
}

TEST(DecodeFuzz, Jpeg) {
  const Image image = smooth_image({45, 61}, 3);
  mutate({write_jpeg(image), write_jpeg(image, {.progressive = true}), write_jpeg(image, {.arithmetic = true}),
          write_jpeg(image, {.chroma_across = 1, .chroma_down = 1, .restart_interval = 2}),
          write_jpeg(smooth_image({45, 61}, 1), {.orientation = 6}), write_jpeg(smooth_image({45, 61}, 4))},
         1, [](FileBytes file) { return file; });
}

TEST(DecodeFuzz, Png) {
  const Image image = smooth_image({45, 61}, 3);
  std::vector<std::uint8_t> row(61 * 45, 3);
  mutate({write_png(image), write_png(image, true), write_png(smooth_image({45, 61}, 1)),
          write_png(smooth_image({45, 61}, 4)),
          write_png({45, 61}, row, {.type = 3, .palette = std::vector<std::uint8_t>(48, 7), .alpha = {1, 2, 3}})},
         2, with_checksums);
}

/// Files of one type, as Pillow writes them.
std::vector<FileBytes> files_of(std::string_view type) {
  std::vector<FileBytes> files;
  for (const ImageTypeValues& values : kImageTypeValues)
    if (std::string_view(values.name).starts_with(type)) files.push_back(file_of_digits(values.file));
  return files;
}

/// Some of these have no checksums, and pixels as they are: most changes are harmless.
void mutate_type(std::string_view name, ImageFileType type, std::uint32_t seed) {
  if (!is_read(type)) GTEST_SKIP() << "built without " << to_string(type);
  const std::vector<FileBytes> files = files_of(name);
  ASSERT_FALSE(files.empty());
  Mutations random(seed);
  int decoded = 0;
  for (int i = 0; i < kMutatedFiles; ++i)
    decoded += survives(random.of(files[static_cast<std::size_t>(i) % files.size()]), random) ? 1 : 0;
  EXPECT_GT(decoded, 0);
  EXPECT_LT(decoded, kMutatedFiles);
}

TEST(DecodeFuzz, Webp) { mutate_type("webp", ImageFileType::webp, 3); }
TEST(DecodeFuzz, Gif) { mutate_type("gif", ImageFileType::gif, 4); }
TEST(DecodeFuzz, Bmp) { mutate_type("bmp", ImageFileType::bmp, 5); }
TEST(DecodeFuzz, Tiff) { mutate_type("tiff", ImageFileType::tiff, 6); }
TEST(DecodeFuzz, Pnm) { mutate_type("p", ImageFileType::pnm, 7); }

}  // namespace
}  // namespace bantam::decode_fuzz_test
