// Changes of pixels and affine maps: torchvision's values (tests/oracles/augment.py), masks beside images, and cases by
// hand.
#include <algorithm>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "bantam/data/augment/auto_augment.h"
#include "tests/data/augment/augment_oracle.h"
#include "tests/data/augment/augment_support.h"
#include "tests/data/support.h"

namespace bantam::pixel_changes_test {
namespace {

using testing::augment_oracle;
using testing::oracle_sample;
using testing::TestSample;
using Op = AugmentOperation;

/// What a change differs by from the oracle, in steps of a byte.
struct Difference {
  double mean = 0;
  int most = 0;
  double share = 0;  ///< of values that differ by more than 2
};

Difference difference(const std::vector<std::uint8_t>& got, const std::vector<std::uint8_t>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  Difference d;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const int off = std::abs(int{got[i]} - int{expected[i]});
    d.mean += off;
    d.most = std::max(d.most, off);
    d.share += off > 2 ? 1 : 0;
  }
  d.mean /= static_cast<double>(got.size());
  d.share /= static_cast<double>(got.size());
  return d;
}

struct Case {
  const char* name;
  std::int64_t channels;
  std::function<void(const PixelView&)> change;
};

/// Values cut off at whole numbers may be one apart where float32 rounds otherwise; grey is rounded here and cut off
/// there, which a factor below 2 does not double.
TEST(PixelChanges, AreTorchvisionsValues) {
  const Case cases[] = {
      {"brightness_low", 3, [](const PixelView& i) { adjust_brightness(i, 0.35f); }},
      {"brightness_high", 1, [](const PixelView& i) { adjust_brightness(i, 1.8f); }},
      {"contrast_low", 3, [](const PixelView& i) { adjust_contrast(i, 0.3f); }},
      {"contrast_high", 3, [](const PixelView& i) { adjust_contrast(i, 1.7f); }},
      {"contrast_grey", 1, [](const PixelView& i) { adjust_contrast(i, 1.7f); }},
      {"saturation_low", 3, [](const PixelView& i) { adjust_saturation(i, 0.2f); }},
      {"saturation_high", 3, [](const PixelView& i) { adjust_saturation(i, 1.9f); }},
      {"hue_left", 3, [](const PixelView& i) { adjust_hue(i, -0.37f); }},
      {"hue_right", 3, [](const PixelView& i) { adjust_hue(i, 0.11f); }},
      {"sharpness_low", 3, [](const PixelView& i) { adjust_sharpness(i, 0.1f); }},
      {"sharpness_high", 1, [](const PixelView& i) { adjust_sharpness(i, 1.9f); }},
      {"grey", 3, [](const PixelView& i) { to_grey(i); }},
      {"posterize", 3, [](const PixelView& i) { posterize(i, 3); }},
      {"solarize", 3, [](const PixelView& i) { solarize(i, 100.0f); }},
      {"autocontrast", 3,
       [](const PixelView& i) {
         std::transform(i.data, i.data + i.values(), i.data, [](std::uint8_t v) { return v / 2 + 40; });
         autocontrast(i);
       }},
      {"rotate_bilinear", 3,
       [](const PixelView& i) {
         const std::vector<std::uint8_t> fill = {10, 20, 30};
         warp(i, {.degrees = -21.0}, Interpolation::bilinear, fill);
       }},
      {"affine_bilinear", 1,
       [](const PixelView& i) {
         const std::vector<std::uint8_t> fill = {77};
         const AffineMap map{
             .degrees = 14.0, .translate_x = 2, .translate_y = -1, .scale = 1.2, .shear_x = 8.0, .shear_y = -5.0};
         warp(i, map, Interpolation::bilinear, fill);
       }},
      {"shrink_bilinear", 3, [](const PixelView& i) {
         const std::vector<std::uint8_t> fill = {0};
         warp(i, {.degrees = -40.0, .translate_y = 3, .scale = 0.7}, Interpolation::bilinear, fill);
       }}};
  const auto oracle = augment_oracle();
  for (const Case& c : cases) {
    TestSample sample = oracle_sample(c.channels);
    c.change(image_of(sample.view(), c.name));
    const Difference d = difference(sample.pixels, oracle.at(c.name));
    EXPECT_LE(d.mean, 1.0) << c.name;
    EXPECT_LE(d.most, 2) << c.name;
    EXPECT_NE(sample.pixels, oracle_sample(c.channels).pixels) << c.name;
  }
}

/// Nearest pixels: all but those whose place is half-way between two.
TEST(PixelChanges, MapsOfTheNearestPixelAreTorchvisions) {
  struct Nearest {
    const char* name;
    std::int64_t channels;
    DrawnOperation operation;
    std::uint8_t fill;
  };
  const Nearest cases[] = {{"rotate_nearest", 3, {Op::rotate, 33.0}, 9},
                           {"shear_x", 3, {Op::shear_x, 0.31}, 0},
                           {"shear_y", 1, {Op::shear_y, -0.57}, 0},
                           {"translate_x", 3, {Op::translate_x, 4.6}, 0},
                           {"translate_y", 1, {Op::translate_y, -3.9}, 0}};
  const auto oracle = augment_oracle();
  for (const Nearest& c : cases) {
    TestSample sample = oracle_sample(c.channels);
    apply_operation(sample.view(), c.operation, Interpolation::nearest, {.image = {c.fill}});
    EXPECT_LE(difference(sample.pixels, oracle.at(c.name)).share, 0.01) << c.name;
  }
}

TEST(PixelChanges, MasksMoveWithTheirImages) {
  struct Moved {
    const char* name;
    AffineMap map;
  };
  const Moved cases[] = {
      {"mask_rotate", {.degrees = -21.0}},
      {"mask_affine",
       {.degrees = 14.0, .translate_x = 2, .translate_y = -1, .scale = 1.2, .shear_x = 8.0, .shear_y = -5.0}}};
  const auto oracle = augment_oracle();
  for (const Moved& c : cases) {
    TestSample sample = oracle_sample(1);
    warp(sample.view(), image_of(sample.view(), "test"), c.map, Interpolation::bilinear, {});
    const std::vector<std::uint8_t> bytes(sample.mask.begin(), sample.mask.end());
    EXPECT_LE(difference(bytes, oracle.at(c.name)).share, 0.01) << c.name;
    EXPECT_EQ(sample.label, 7);
  }
}

TEST(PixelChanges, EqualizeIsTorchvisions) {
  TestSample one = oracle_sample(3);
  TestSample wide({12, 56}, 3);
  for (std::int64_t y = 0; y < 12; ++y)
    for (std::int64_t x = 0; x < 56 * 3; ++x)
      wide.pixels[static_cast<std::size_t>(y * 56 * 3 + x)] = one.pixels[static_cast<std::size_t>(y * 42 + x % 42)];
  equalize(image_of(wide.view(), "test"));
  std::vector<std::uint8_t> left;
  for (std::int64_t y = 0; y < 12; ++y)
    left.insert(left.end(), wide.pixels.begin() + y * 168, wide.pixels.begin() + y * 168 + 42);
  EXPECT_EQ(left, augment_oracle().at("equalize"));
}

TEST(PixelChanges, ByHand) {
  TestSample sample({1, 4}, 1);
  const auto change = [&](std::vector<std::uint8_t> pixels, auto&& f) {
    sample.pixels = std::move(pixels);
    f(image_of(sample.view(), "test"));
    return sample.pixels;
  };
  using Bytes = std::vector<std::uint8_t>;
  EXPECT_EQ(change({0, 10, 100, 200}, [](const PixelView& i) { adjust_brightness(i, 1.5f); }),
            (Bytes{0, 15, 150, 255}));
  EXPECT_EQ(change({0, 100, 100, 200}, [](const PixelView& i) { adjust_contrast(i, 0.5f); }),
            (Bytes{50, 100, 100, 150}));
  EXPECT_EQ(change({0, 31, 32, 255}, [](const PixelView& i) { posterize(i, 3); }), (Bytes{0, 0, 32, 224}));
  EXPECT_EQ(change({0, 99, 100, 255}, [](const PixelView& i) { solarize(i, 100.0f); }), (Bytes{0, 99, 155, 0}));
  EXPECT_EQ(change({50, 100, 100, 150}, [](const PixelView& i) { autocontrast(i); }), (Bytes{0, 127, 127, 255}));
  EXPECT_EQ(change({9, 9, 9, 9}, [](const PixelView& i) { autocontrast(i); }), (Bytes{9, 9, 9, 9}));
  EXPECT_EQ(change({9, 9, 9, 9}, [](const PixelView& i) { equalize(i); }), (Bytes{9, 9, 9, 9}));
  EXPECT_EQ(change({1, 2, 3, 4}, [](const PixelView& i) { posterize(i, 8); }), (Bytes{1, 2, 3, 4}));
}

/// A quarter turn, on a square, has no values between pixels.
TEST(PixelChanges, AQuarterTurnMovesPixelsWhole) {
  for (const Interpolation how : {Interpolation::nearest, Interpolation::bilinear}) {
    TestSample sample({3, 3}, 1);
    std::iota(sample.pixels.begin(), sample.pixels.end(), std::uint8_t{1});
    std::iota(sample.mask.begin(), sample.mask.end(), 1);
    warp(sample.view(), image_of(sample.view(), "test"), {.degrees = 90.0}, how, {});
    EXPECT_EQ(sample.pixels, (std::vector<std::uint8_t>{7, 4, 1, 8, 5, 2, 9, 6, 3}));
    EXPECT_EQ(sample.mask, (std::vector<std::int32_t>{7, 4, 1, 8, 5, 2, 9, 6, 3}));
  }
}

TEST(AugmentTables, AreTorchvisions) {
  const std::map<std::string, Op> names = {{"Identity", Op::identity},
                                           {"ShearX", Op::shear_x},
                                           {"ShearY", Op::shear_y},
                                           {"TranslateX", Op::translate_x},
                                           {"TranslateY", Op::translate_y},
                                           {"Rotate", Op::rotate},
                                           {"Brightness", Op::brightness},
                                           {"Color", Op::color},
                                           {"Contrast", Op::contrast},
                                           {"Sharpness", Op::sharpness},
                                           {"Posterize", Op::posterize},
                                           {"Solarize", Op::solarize},
                                           {"AutoContrast", Op::autocontrast},
                                           {"Equalize", Op::equalize}};
  const auto oracle = testing::magnitude_oracle();
  ASSERT_EQ(oracle.size(), trivial_operations().size() + rand_operations().size());
  for (const auto& [table, ranges] :
       {std::pair("trivial.", trivial_operations()), std::pair("rand.", rand_operations())})
    for (const auto& [name, operation] : names) {
      const auto range = std::ranges::find(ranges, operation, &OperationRange::operation);
      ASSERT_NE(range, ranges.end()) << name;
      const auto expected = oracle.find(table + name + (range->both ? ".1" : ".0"));
      ASSERT_NE(expected, oracle.end()) << table << name;
      for (int bin = 0; bin < kMagnitudeBins; ++bin)
        EXPECT_NEAR(range->magnitude(bin), expected->second[static_cast<std::size_t>(bin)], 2e-5) << table << name;
    }
}

TEST(PixelChanges, FloatMasksAreFilledWithZero) {
  std::vector<float> mask = {1, 2, 3, 4};
  warp(MaskView{reinterpret_cast<std::byte*>(mask.data()), 2, 2, sizeof(float), DType::float32}, {.translate_x = 1},
       255);
  EXPECT_EQ(mask, (std::vector<float>{0, 1, 0, 3}));
}

TEST(PixelChanges, ImagesOfOtherTypesAreRefused) {
  std::vector<float> pixels(12);
  const std::vector<SampleField> fields = {{"images", {2, 2, 3}, DType::float32}};
  const std::vector<std::span<std::byte>> buffers = {std::as_writable_bytes(std::span(pixels))};
  const AugmentedSample sample{.fields = fields, .buffers = buffers};
  EXPECT_CONTAINS(testing::message_of<ShapeError>([&] { (void)image_of(sample, "rotation"); }),
                  "rotation changes images (height, width, channels) of uint8; these are (2, 2, 3) of float32");
}

}  // namespace
}  // namespace bantam::pixel_changes_test
