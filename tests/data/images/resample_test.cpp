// Resampling against Pillow's values and a plain implementation, and windows of files against whole images.
#include "bantam/data/images/resample.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/data/images/decode.h"
#include "tests/data/images/image_files.h"
#include "tests/data/images/pillow_values.h"

namespace bantam::resample_test {
namespace {

using namespace testing;

Image resampled(const Image& in, const Sampling& sampling, Interpolation interpolation = Interpolation::bilinear) {
  Image out;
  resample(in, sampling, interpolation, out);
  return out;
}

Image mirrored(const Image& in) {
  Image out = in;
  const auto channels = static_cast<std::size_t>(in.channels);
  for (std::size_t at = 0; at < in.pixels.size(); at += in.row_bytes())
    for (std::size_t x = 0; x < in.row_bytes(); x += channels)
      std::copy_n(&in.pixels[at + x], channels, &out.pixels[at + in.row_bytes() - channels - x]);
  return out;
}

TEST(Resample, AsPillow) {
  for (const ResampledValues& values : kResampledValues) {
    const Image in = pattern_image({19, 26}, values.channels);
    const Difference difference = difference_of(resampled(in, values.sampling),
                                                image_of_digits(values.sampling.size, values.channels, values.pixels));
    // Weights have 14 bits here and 22 there: a value whose fraction is near one half may round the other way.
    EXPECT_LE(difference.most, 1);
    EXPECT_LT(difference.mean, 0.1) << values.sampling.size.height << " " << values.sampling.size.width;
  }
}

/// Weights of a triangle of one direction, as numbers of double precision.
std::vector<std::vector<double>> triangles(std::int64_t window, std::int64_t size) {
  const double scale = static_cast<double>(window) / static_cast<double>(size), width = std::max(scale, 1.0);
  std::vector<std::vector<double>> all;
  for (std::int64_t i = 0; i < size; ++i) {
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t x = 0; x < window; ++x) {
      const double from = (static_cast<double>(i) + 0.5) * scale - (static_cast<double>(x) + 0.5);
      sum += weights.emplace_back(std::max(0.0, 1 - std::abs(from) / width));
    }
    for (double& weight : weights) weight /= sum;
    all.push_back(weights);
  }
  return all;
}

/// Horizontal first, rounded between.
Image plainly(const Image& in, const Sampling& sampling) {
  const auto across = triangles(sampling.window.width, sampling.size.width);
  const auto down = triangles(sampling.window.height, sampling.size.height);
  Image out;
  out.reshape(sampling.size, in.channels);
  for (std::int64_t x = 0; x < sampling.size.width; ++x)
    for (std::int64_t c = 0; c < in.channels; ++c) {
      std::vector<double> column;
      for (std::int64_t y = 0; y < sampling.window.height; ++y) {
        double sum = 0;
        for (std::int64_t k = 0; k < sampling.window.width; ++k)
          sum += across[static_cast<std::size_t>(x)][static_cast<std::size_t>(k)] *
                 in.pixels[static_cast<std::size_t>(
                     ((sampling.top + y) * in.size.width + sampling.left + k) * in.channels + c)];
        column.push_back(std::floor(sum + 0.5));
      }
      for (std::int64_t y = 0; y < sampling.size.height; ++y) {
        double sum = 0;
        for (std::size_t k = 0; k < column.size(); ++k) sum += down[static_cast<std::size_t>(y)][k] * column[k];
        out.pixels[static_cast<std::size_t>((y * sampling.size.width + x) * in.channels + c)] =
            static_cast<std::uint8_t>(std::floor(sum + 0.5));
      }
    }
  return sampling.mirrored ? mirrored(out) : out;
}

TEST(Resample, AsPlainly) {
  for (const std::int64_t channels : {1, 2, 3, 4, 5, 6, 8, 9}) {
    const Image in = noise_image({40, 53}, channels);
    for (const Sampling& sampling :
         {Sampling{0, 0, {40, 53}, {10, 12}}, Sampling{3, 2, {37, 51}, {38, 50}}, Sampling{39, 52, {1, 1}, {9, 7}},
          Sampling{5, 6, {1, 40}, {3, 90}}, Sampling{0, 0, {40, 53}, {1, 2}}, Sampling{7, 9, {20, 20}, {20, 31}},
          Sampling{7, 9, {20, 20}, {5, 20}}, Sampling{1, 1, {30, 30}, {29, 29}, true}}) {
      const Difference difference = difference_of(resampled(in, sampling), plainly(in, sampling));
      EXPECT_LE(difference.most, 1);
      EXPECT_LT(difference.mean, 0.1) << sampling.size.height << " " << sampling.size.width;
    }
  }
}

// Channels do not mix: each of many is as in an image of its own, to the bit.
TEST(Resample, ManyChannelsAreEachAsAlone) {
  const ImageSize size{23, 31};
  const Sampling sampling{2, 3, {20, 27}, {13, 40}, true};
  for (const std::size_t channels : {3, 5, 7, 13}) {
    const Image in = noise_image(size, static_cast<std::int64_t>(channels)), all = resampled(in, sampling);
    ASSERT_EQ(all.pixels.size(), 13u * 40 * channels);
    for (std::size_t c = 0; c < channels; ++c) {
      Image one, seen;
      one.reshape(size, 1);
      seen.reshape(sampling.size, 1);
      for (std::size_t i = 0; i < one.pixels.size(); ++i) one.pixels[i] = in.pixels[i * channels + c];
      for (std::size_t i = 0; i < seen.pixels.size(); ++i) seen.pixels[i] = all.pixels[i * channels + c];
      EXPECT_EQ(seen.pixels, resampled(one, sampling).pixels) << c << " of " << channels;
    }
  }
}

TEST(Resample, FlatStaysFlat) {
  for (const std::uint8_t value : {0, 1, 127, 254, 255}) {
    Image in;
    in.reshape({61, 47}, 3);
    std::ranges::fill(in.pixels, value);
    for (const ImageSize size : {ImageSize{7, 13}, {60, 46}, {100, 99}, {1, 1}})
      EXPECT_TRUE(std::ranges::all_of(resampled(in, {0, 0, in.size, size}).pixels,
                                      [&](std::uint8_t pixel) { return pixel == value; }));
  }
}

TEST(Resample, EqualSizesAreCopies) {
  const Image in = noise_image({20, 30}, 3);
  for (const Interpolation interpolation : {Interpolation::bilinear, Interpolation::nearest}) {
    EXPECT_EQ(resampled(in, {0, 0, in.size, in.size}, interpolation).pixels, in.pixels);
    EXPECT_EQ(resampled(in, {0, 0, in.size, in.size, true}, interpolation).pixels, mirrored(in).pixels);
    const Image part = resampled(in, {4, 5, {3, 2}, {3, 2}}, interpolation);
    EXPECT_EQ(part.pixels[0], in.pixels[(4 * 30 + 5) * 3]);
    EXPECT_EQ(part.pixels[3 * 2 * 3 - 1], in.pixels[(6 * 30 + 6) * 3 + 2]);
  }
}

TEST(Resample, PixelsOutsideTheWindowDoNotMatter) {
  Image in = noise_image({32, 32}, 3);
  const Sampling sampling{8, 8, {16, 16}, {9, 21}};
  const Image before = resampled(in, sampling);
  for (std::int64_t y = 0; y < 32; ++y)
    for (std::int64_t x = 0; x < 32; ++x)
      if (y < 8 || y >= 24 || x < 8 || x >= 24)
        for (std::int64_t c = 0; c < 3; ++c) in.pixels[static_cast<std::size_t>((y * 32 + x) * 3 + c)] ^= 0xFF;
  EXPECT_EQ(resampled(in, sampling).pixels, before.pixels);
}

TEST(Resample, Nearest) {
  Image in;
  in.reshape({2, 4}, 1);
  in.pixels = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(resampled(in, {0, 0, {2, 4}, {4, 2}}, Interpolation::nearest).pixels,
            (std::vector<std::uint8_t>{2, 4, 2, 4, 6, 8, 6, 8}));
  EXPECT_EQ(resampled(in, {1, 1, {1, 2}, {1, 5}, true}, Interpolation::nearest).pixels,
            (std::vector<std::uint8_t>{7, 7, 7, 6, 6}));
}

Image sampled(const FileBytes& file, std::int64_t channels, const Sampling& sampling) {
  Image scratch, out;
  decode_sampled(file, channels, sampling, scratch, out);
  return out;
}

Image whole_then_sampled(const FileBytes& file, std::int64_t channels, const Sampling& sampling) {
  Image whole;
  decode_image(file, channels, whole);
  return resampled(whole, sampling);
}

/// Windows at corners, edges and in between, at and beside the bounds of blocks; none twice as large as `size`.
std::vector<Sampling> windows_of(ImageSize image) {
  std::vector<Sampling> all;
  for (const std::int64_t top : {0, 1, 15, 16, 17, 40})
    for (const std::int64_t left : {0, 7, 8, 16, 31, 33})
      for (const std::int64_t extent : {1, 9, 32, 57}) {
        const ImageSize window{std::min(extent, image.height - top), std::min(extent + 3, image.width - left)};
        all.push_back({top, left, window, {40, 35}, (top + left) % 2 == 1});
      }
  all.push_back({0, 0, image, {80, 70}});
  all.push_back({image.height - 1, image.width - 1, {1, 1}, {2, 2}});
  return all;
}

TEST(DecodeSampled, WindowsHaveTheWholeImagesBits) {
  const Image image = smooth_image({97, 121}, 3);
  std::vector<std::pair<std::string, FileBytes>> files;
  for (const bool progressive : {false, true})
    for (const int across : {1, 2, 4})
      for (const int down : {1, 2})
        files.emplace_back(
            "JPEG " + std::to_string(across) + " x " + std::to_string(down) + (progressive ? ", progressive" : ""),
            write_jpeg(image, {.chroma_across = across, .chroma_down = down, .progressive = progressive}));
  files.emplace_back("restarts", write_jpeg(image, {.restart_interval = 5}));
  files.emplace_back("grey", write_jpeg(smooth_image({97, 121}, 1)));
  files.emplace_back("YCCK", write_jpeg(smooth_image({97, 121}, 4), {.ycck = true}));
  for (const int orientation : {3, 6, 7}) files.emplace_back("turned", write_jpeg(image, {.orientation = orientation}));
  files.emplace_back("PNG", write_png(image));
  files.emplace_back("PNG, interlaced", write_png(image, true));
  for (const auto& [name, file] : files)
    for (const std::int64_t channels : {1, 3, 4})
      for (const Sampling& sampling : windows_of(read_image_header(file).size))
        ASSERT_EQ(sampled(file, channels, sampling).pixels, whole_then_sampled(file, channels, sampling).pixels)
            << name << ", " << channels << " channels, " << sampling.window.height << " x " << sampling.window.width
            << " at " << sampling.top << ", " << sampling.left;
}

TEST(DecodeSampled, ReducedDecodingIsNear) {
  const ImageSize size{403, 517};
  for (const bool progressive : {false, true})
    for (const std::int64_t side : {5, 12, 24, 25, 49, 50, 97, 100}) {
      const FileBytes file = write_jpeg(smooth_image(size, 3), {.progressive = progressive});
      for (const Sampling& sampling : {Sampling{0, 0, size, {side, side}}, Sampling{3, 5, {400, 512}, {side, side}},
                                       Sampling{101, 102, {203, 203}, {side, side + 1}, true}}) {
        const Difference difference = difference_of(sampled(file, 3, sampling), whole_then_sampled(file, 3, sampling));
        EXPECT_LT(difference.mean, 1) << side;
        EXPECT_LT(difference.most, 8) << side;
      }
    }
}

TEST(DecodeSampled, WindowsBeyondTheImage) {
  const FileBytes file = write_png(noise_image({10, 10}, 3));
  for (const Sampling& sampling : {Sampling{-1, 0, {5, 5}, {5, 5}}, Sampling{0, 6, {5, 5}, {5, 5}},
                                   Sampling{0, 0, {0, 5}, {5, 5}}, Sampling{0, 0, {11, 5}, {5, 5}}})
    EXPECT_THROW(sampled(file, 3, sampling), ShapeError);
}

}  // namespace
}  // namespace bantam::resample_test
