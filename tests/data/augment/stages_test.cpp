// Stages as configurations name them: what they draw, that a sample's bits follow from (seed, epoch, sample), sizes and
// windows by hand, and what they refuse.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/pipeline/pipeline.h"
#include "tests/data/augment/augment_support.h"
#include "tests/data/support.h"

namespace bantam::stages_test {
namespace {

using testing::apply_on_host;
using testing::message_of;
using testing::oracle_sample;
using testing::random_of;
using testing::read_stage;
using testing::TestSample;

bool operator==(const Sampling& a, const Sampling& b) {
  return a.top == b.top && a.left == b.left && a.window == b.window && a.size == b.size && a.mirrored == b.mirrored;
}

const char* const kHostStages[] = {"affine: {degrees: 10, translate: [0.2, 0.1], scale: [0.7, 1.3], shear: 9}",
                                   "color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.2}",
                                   "grayscale: {p: 0.5}",
                                   "rand_augment: {ops: 2, magnitude: 15}",
                                   "random_erasing: {p: 0.8, value: random}",
                                   "random_vertical_flip: {}",
                                   "rotation: {degrees: 40}",
                                   "trivial_augment: {}"};

TEST(Stages, ASamplesBitsFollowFromSeedEpochAndNumber) {
  for (const char* stage : kHostStages) {
    const Augmentations stages = {read_stage(stage)};
    const auto changed = [&](std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
      TestSample sample = oracle_sample(3);
      AugmentedSample view = sample.view(index, epoch);
      apply_on_host(stages, seed, view);
      EXPECT_EQ(sample.label, 7);
      return sample.pixels;
    };
    std::set<std::vector<std::uint8_t>> outcomes;
    for (std::int64_t index = 0; index < 40; ++index) {
      outcomes.insert(changed(1, 0, index));
      EXPECT_EQ(changed(1, 0, index), changed(1, 0, index)) << stage;
    }
    EXPECT_GE(outcomes.size(), 2u) << stage;
    // 40 samples of another epoch, or under another seed, do not all come out as those.
    for (const auto& [seed, epoch] : {std::pair{1, 1}, std::pair{2, 0}}) {
      int same = 0;
      for (std::int64_t index = 0; index < 40; ++index)
        same += changed(static_cast<std::uint64_t>(seed), epoch, index) == changed(1, 0, index) ? 1 : 0;
      EXPECT_LT(same, 40) << stage;
    }
  }
}

TEST(Stages, OnlyAShareIsChanged) {
  for (const char* stage : {"rotation: {degrees: [20, 40], p: 0.3}", "color_jitter: {brightness: [2, 3], p: 0.3}",
                            "grayscale: {p: 0.3}", "random_erasing: {p: 0.3, value: 255}",
                            "random_vertical_flip: {p: 0.3}", "affine: {degrees: [20, 40], p: 0.3}"}) {
    const Augmentations stages = {read_stage(stage)};
    int changed = 0;
    for (std::int64_t index = 0; index < 1000; ++index) {
      TestSample sample = oracle_sample(3);
      AugmentedSample view = sample.view(index);
      apply_on_host(stages, 3, view);
      changed += sample.pixels != oracle_sample(3).pixels ? 1 : 0;
    }
    EXPECT_NEAR(changed, 300, 73) << stage;  // five standard deviations
  }
}

TEST(Stages, AShareOfZeroChangesNothing) {
  for (const char* stage : {"trivial_augment: {p: 0}", "rand_augment: {p: 0}", "color_jitter: {}", "affine: {}",
                            "rand_augment: {ops: 14, magnitude: 0, p: 0}", "random_vertical_flip: {p: 0}"}) {
    const Augmentations stages = {read_stage(stage)};
    for (std::int64_t index = 0; index < 20; ++index) {
      TestSample sample = oracle_sample(3);
      AugmentedSample view = sample.view(index);
      apply_on_host(stages, 3, view);
      EXPECT_EQ(sample.pixels, oracle_sample(3).pixels) << stage;
      EXPECT_EQ(sample.mask, oracle_sample(3).mask) << stage;
    }
  }
}

TEST(Stages, MasksMoveWithTheirImages) {
  // The image says in each pixel what the mask says.
  for (const char* stage :
       {"random_vertical_flip: {p: 1}", "rotation: {degrees: [20, 60], interpolation: nearest, fill: 255}",
        "affine: {translate: 0.3, shear: 20, interpolation: nearest, fill: 255}"}) {
    const Augmentations stages = {read_stage(stage)};
    for (std::int64_t index = 0; index < 50; ++index) {
      TestSample sample = oracle_sample(1);
      for (std::size_t i = 0; i < sample.mask.size(); ++i) sample.mask[i] = sample.pixels[i];
      AugmentedSample view = sample.view(index);
      apply_on_host(stages, 3, view);
      for (std::size_t i = 0; i < sample.mask.size(); ++i) ASSERT_EQ(sample.mask[i], sample.pixels[i]) << stage;
      EXPECT_NE(sample.pixels, oracle_sample(1).pixels) << stage;
    }
  }
}

TEST(Stages, GreyImagesPassStagesOfColour) {
  for (const char* stage : kHostStages) {
    const auto made = read_stage(stage);
    made->check_images({8, 8, 1}, DType::uint8);
    TestSample sample = oracle_sample(1);
    AugmentedSample view = sample.view();
    apply_on_host({made}, 3, view);
  }
}

TEST(Stages, ColourNeedsOneOrThreeChannels) {
  for (const char* stage : {"color_jitter: {}", "grayscale: {}", "trivial_augment: {}", "rand_augment: {}"})
    for (const std::int64_t channels : {2, 4})
      EXPECT_CONTAINS(message_of<ShapeError>([&] {
                        read_stage(stage)->check_images({8, 8, channels}, DType::uint8);
                      }),
                      "changes grey or RGB images (1 or 3 channels); these have");
  PipelineOptions options;
  options.augmentations = {read_stage("color_jitter: {hue: 0.1}")};
  EXPECT_CONTAINS(message_of<ShapeError>([&] { (void)batch_shape(options, {8, 8, 4}); }), "these have 4 channels");
  EXPECT_CONTAINS(message_of<ShapeError>([&] {
                    read_stage("rotation: {degrees: 5, fill: [1, 2]}")->check_images({8, 8, 3}, DType::uint8);
                  }),
                  "rotation: a fill of 2 values, but images have 3 channels");
}

TEST(Stages, BadOptionsAreNamed) {
  const auto message = [](const char* stage) { return message_of<ConfigError>([&] { (void)read_stage(stage); }); };
  EXPECT_CONTAINS(message("random_resized_crop: {size: 8, scale: [0.5, 0.2]}"),
                  "the first number, 0.5, is larger than the second, 0.2");
  EXPECT_CONTAINS(message("random_resized_crop: {size: 8, ratio: [1, 2, 3]}"), "expected a list of two numbers");
  EXPECT_CONTAINS(message("color_jitter: {hue: 0.6}"), "0.6");
  EXPECT_CONTAINS(message("resize: {}"), "size");
  EXPECT_CONTAINS(message("rotation: {degres: 4}"), "degrees");
  EXPECT_CONTAINS(message("rand_augment: {magnitude: 31}"), "31");
  EXPECT_CONTAINS(message("affine: {translate: [0.1]}"), "expected two shares, of width and height");
  EXPECT_CONTAINS(message("rotation: {degrees: 4, fill: [1, 300]}"), "300");
}

TEST(Resize, TheOtherSideIsInProportion) {
  PhiloxSequence random = random_of(1);
  const auto stage = read_stage("resize: {size: 256}");
  EXPECT_EQ(stage->size_after({375, 500}), (ImageSize{256, 341}));
  EXPECT_EQ(stage->size_after({500, 375}), (ImageSize{341, 256}));
  EXPECT_EQ(stage->size_after({64, 64}), (ImageSize{256, 256}));
  EXPECT_EQ(stage->size_after({}), ImageSize{});
  EXPECT_EQ(read_stage("resize: {size: [30, 20]}")->size_after({}), (ImageSize{30, 20}));
  EXPECT_TRUE(stage->region({500, 375}, random) == (Sampling{0, 0, {500, 375}, {341, 256}}));
  EXPECT_FALSE(stage->has_chance());
  ASSERT_EQ(stage->for_evaluation().size(), 1u);
  EXPECT_EQ(stage->for_evaluation()[0]->size_after({375, 500}), (ImageSize{256, 341}));
}

TEST(CenterCrop, IsInTheMiddle) {
  PhiloxSequence random = random_of(1);
  const auto stage = read_stage("center_crop: {size: [4, 5]}");
  EXPECT_TRUE(stage->region({10, 10}, random) == (Sampling{3, 2, {4, 5}, {4, 5}}));  // 2.5 to the even number
  EXPECT_EQ(stage->size_after({}), (ImageSize{4, 5}));
  EXPECT_CONTAINS(message_of<ShapeError>([&] {
                    (void)stage->size_after({10, 4});
                  }),
                  "a window of 4x5 does not fit an image of 10x4");
  EXPECT_FALSE(stage->has_chance());
}

TEST(RandomResizedCrop, WindowsHaveTheSaidAreasAndShapes) {
  PhiloxSequence random = random_of(2);
  const auto stage = read_stage("random_resized_crop: {size: 24, scale: [0.1, 0.6], ratio: [0.5, 2]}");
  double area = 0, logs = 0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    const Sampling s = stage->region({400, 400}, random);
    ASSERT_GE(s.top, 0);
    ASSERT_GE(s.left, 0);
    ASSERT_LE(s.top + s.window.height, 400);
    ASSERT_LE(s.left + s.window.width, 400);
    ASSERT_EQ(s.size, (ImageSize{24, 24}));
    const double share = static_cast<double>(s.window.height * s.window.width) / 160000.0;
    const double ratio = static_cast<double>(s.window.width) / static_cast<double>(s.window.height);
    ASSERT_TRUE(share > 0.099 && share < 0.605) << share;
    ASSERT_TRUE(ratio > 0.495 && ratio < 2.02) << ratio;
    area += share / kDraws;
    logs += std::log(ratio) / kDraws;
  }
  EXPECT_NEAR(area, 0.35, 0.02);  // even in [0.1, 0.6], less the few that do not fit: large and long ones
  EXPECT_NEAR(logs, 0.0, 0.03);   // log of the ratio is even about 0: five standard deviations of 0.4/63
}

TEST(RandomResizedCrop, WhereNothingFitsTheMiddleIsTaken) {
  PhiloxSequence random = random_of(2);
  const auto stage = read_stage("random_resized_crop: {size: 24, scale: [1, 1]}");
  EXPECT_TRUE(stage->region({10, 100}, random) == (Sampling{0, 43, {10, 13}, {24, 24}}));
  EXPECT_TRUE(stage->region({100, 10}, random) == (Sampling{43, 0, {13, 10}, {24, 24}}));
}

TEST(RandomResizedCrop, HeldOutImagesAreResizedAndCutFromTheMiddle) {
  const Augmentations held_out = read_stage("random_resized_crop: {size: 224}")->for_evaluation();
  ASSERT_EQ(held_out.size(), 2u);
  EXPECT_EQ(held_out[0]->name(), "resize");
  EXPECT_EQ(held_out[0]->size_after({375, 500}), (ImageSize{256, 341}));
  EXPECT_EQ(held_out[1]->name(), "center_crop");
  EXPECT_EQ(held_out[1]->size_after({256, 341}), (ImageSize{224, 224}));
  const Augmentations wide = read_stage("random_resized_crop: {size: [112, 224]}")->for_evaluation();
  EXPECT_EQ(wide[0]->size_after({}), (ImageSize{128, 256}));
}

TEST(RandomCrop, RegionsAreWindowsOfTheImage) {
  PhiloxSequence random = random_of(4);
  const auto stage = random_crop({.height = 5, .width = 7});
  ASSERT_TRUE(stage->has_region_form());
  std::set<std::int64_t> tops, lefts;
  for (int i = 0; i < 500; ++i) {
    const Sampling s = stage->region({8, 9}, random);
    EXPECT_EQ(s.window, (ImageSize{5, 7}));
    EXPECT_EQ(s.size, (ImageSize{5, 7}));
    tops.insert(s.top);
    lefts.insert(s.left);
  }
  EXPECT_EQ(tops, (std::set<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(lefts, (std::set<std::int64_t>{0, 1, 2}));
  EXPECT_TRUE(stage->for_evaluation()[0]->region({8, 9}, random) == (Sampling{1, 1, {5, 7}, {5, 7}}));
  EXPECT_CONTAINS(message_of<ShapeError>([&] { (void)stage->size_after({4, 9}); }), "a window of 5x7 does not fit");
  EXPECT_FALSE(random_crop({.padding = 4})->has_region_form());
}

/// Each shift of up to two pixels, as the kernel's window of the padded image: image and mask move alike.
TEST(RandomCrop, PaddedWindowsMoveMasksToo) {
  for (const kernels::PadMode mode : {kernels::PadMode::zero, kernels::PadMode::reflect}) {
    const Augmentations stages = {random_crop({.padding = 2, .mode = mode})};
    ASSERT_TRUE(stages[0]->has_host_form());
    std::set<std::vector<std::int32_t>> outcomes;
    for (std::int64_t index = 0; index < 400; ++index) {
      TestSample sample({3, 4}, 1);
      for (std::size_t i = 0; i < 12; ++i)
        sample.pixels[i] = static_cast<std::uint8_t>(sample.mask[i] = 1 + static_cast<int>(i));
      AugmentedSample view = sample.view(index);
      apply_on_host(stages, 5, view);
      for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(sample.pixels[i], sample.mask[i] == 255 ? 0 : sample.mask[i]);
      outcomes.insert(sample.mask);
    }
    // Mirrored, three rows moved by two up or down are the same.
    EXPECT_EQ(outcomes.size(), mode == kernels::PadMode::zero ? 25u : 20u);
    EXPECT_TRUE(outcomes.contains({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    using Mask = std::vector<std::int32_t>;  // one up, one to the left
    EXPECT_TRUE(outcomes.contains(mode == kernels::PadMode::zero
                                      ? Mask{6, 7, 8, 255, 10, 11, 12, 255, 255, 255, 255, 255}
                                      : Mask{6, 7, 8, 7, 10, 11, 12, 11, 6, 7, 8, 7}));
  }
  EXPECT_FALSE(random_crop({.height = 3, .width = 4, .padding = 2})->has_host_form());
}

/// 255, or the class number that is given; where masks have no padding, none.
TEST(RandomCrop, PaddingOfMasksIsTheGivenClass) {
  EXPECT_EQ(random_crop({.padding = 2})->mask_fill(), 255);
  EXPECT_EQ(random_crop({.padding = 2, .mode = kernels::PadMode::reflect})->mask_fill(), std::nullopt);
  EXPECT_EQ(random_crop({.height = 3, .width = 4})->mask_fill(), std::nullopt);
  EXPECT_EQ(random_crop({.height = 3, .width = 4, .padding = 2})->mask_fill(), std::nullopt);
  const Augmentations stages = {random_crop({.padding = 1, .mask_fill = 70})};
  EXPECT_EQ(stages[0]->mask_fill(), 70);
  EXPECT_EQ(stages[0]->for_evaluation()[0]->mask_fill(), std::nullopt);
  std::set<std::vector<std::int32_t>> outcomes;
  for (std::int64_t index = 0; index < 100; ++index) {
    TestSample sample({2, 3}, 1);
    for (std::size_t i = 0; i < 6; ++i) sample.mask[i] = 1 + static_cast<int>(i);
    AugmentedSample view = sample.view(index);
    apply_on_host(stages, 5, view);
    outcomes.insert(sample.mask);
  }
  EXPECT_EQ(outcomes.size(), 9u);
  EXPECT_TRUE(outcomes.contains({5, 6, 70, 70, 70, 70})) << "one up, one to the left";
}

TEST(RandomFlip, MirrorsTheSaidShareInBothForms) {
  PhiloxSequence random = random_of(4);
  for (const double share : {0.0, 0.2, 0.5, 1.0}) {
    const auto stage = random_flip(share);
    int regions = 0, placed = 0;
    for (int i = 0; i < 4000; ++i) {
      const Sampling s = stage->region({6, 8}, random);
      EXPECT_EQ(s.window, (ImageSize{6, 8}));
      regions += s.mirrored ? 1 : 0;
      kernels::ImagePlacement placement;
      stage->place({}, {{random.next(), random.next(), random.next(), random.next()}}, placement);
      placed += placement.flip;
    }
    const double five = 5 * std::sqrt(4000 * share * (1 - share));
    EXPECT_NEAR(regions, 4000 * share, five);
    EXPECT_NEAR(placed, 4000 * share, five);
  }
}

TEST(RandomFlip, AlternatesBySampleAndEpochInBothForms) {
  const auto stage = read_stage("random_flip: {alternate: true}");
  PhiloxSequence random = random_of(4);
  const auto placed = [&](std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
    kernels::ImagePlacement placement{.flip = 7};
    const PhiloxWords words{{random.next(), random.next(), random.next(), random.next()}};
    stage->place_at({seed, epoch, sample}, {}, words, placement);
    EXPECT_EQ(stage->region_at({seed, epoch, sample}, {6, 8}, random).mirrored, placement.flip == 1);
    return placement.flip;
  };
  int flipped = 0, as_another_seed = 0, as_before = 0;
  for (std::int64_t sample = 0; sample < 4000; ++sample) {
    const int first = placed(1, 0, sample);
    ASSERT_TRUE(first == 0 || first == 1);
    for (std::int64_t epoch = 1; epoch < 5; ++epoch)
      ASSERT_EQ(placed(1, epoch, sample), epoch % 2 == 0 ? first : 1 - first);
    flipped += first;
    as_another_seed += placed(2, 0, sample) == first ? 1 : 0;
    as_before += sample > 0 && placed(1, 0, sample - 1) == first ? 1 : 0;
  }
  const double five = 5 * std::sqrt(4000 * 0.25);  // deviations of fair coins
  EXPECT_NEAR(flipped, 2000, five);
  EXPECT_NEAR(as_another_seed, 2000, five);
  EXPECT_NEAR(as_before, 2000, five);
  EXPECT_TRUE(stage->for_evaluation().empty());
}

TEST(RandomFlip, AlternatingHasNoShare) {
  EXPECT_CONTAINS(message_of<ConfigError>([] { (void)read_stage("random_flip: {alternate: true, p: 0.3}"); }),
                  "with alternate: true half of the images are mirrored in each epoch: leave p out, or make it 0.5");
}

TEST(RandomErasing, ErasesOneRectangleOfTheSaidArea) {
  const Augmentations stages = {
      read_stage("random_erasing: {p: 1, scale: [0.1, 0.2], ratio: [0.5, 2], value: [255, 0, 9]}")};
  for (std::int64_t index = 0; index < 200; ++index) {
    TestSample sample({20, 30}, 3);
    std::fill(sample.pixels.begin(), sample.pixels.end(), std::uint8_t{100});
    AugmentedSample view = sample.view(index);
    apply_on_host(stages, 5, view);
    std::int64_t top = 20, bottom = -1, left = 30, right = -1, count = 0;
    for (std::int64_t y = 0; y < 20; ++y)
      for (std::int64_t x = 0; x < 30; ++x) {
        if (sample.at(y, x) == 100) continue;
        EXPECT_EQ(sample.at(y, x, 0), 255);
        EXPECT_EQ(sample.at(y, x, 1), 0);
        EXPECT_EQ(sample.at(y, x, 2), 9);
        top = std::min(top, y), bottom = std::max(bottom, y), left = std::min(left, x), right = std::max(right, x);
        ++count;
      }
    EXPECT_EQ(count, (bottom - top + 1) * (right - left + 1));
    // 60 to 120 pixels, sides rounded.
    EXPECT_GE(count, 45);
    EXPECT_LE(count, 140);
    EXPECT_EQ(sample.mask, TestSample({20, 30}, 3).mask);
  }
}

TEST(ColorJitter, FactorsAreDrawnEvenly) {
  const Augmentations stages = {read_stage("color_jitter: {brightness: 0.4}")};
  double sum = 0, squares = 0;
  constexpr int kDraws = 2000;
  for (std::int64_t index = 0; index < kDraws; ++index) {
    TestSample sample({1, 1}, 1);
    sample.pixels[0] = 150;
    AugmentedSample view = sample.view(index);
    apply_on_host(stages, 5, view);
    const double factor = (sample.pixels[0] + 0.5) / 150.0;
    EXPECT_TRUE(factor > 0.595 && factor < 1.405) << factor;
    sum += factor / kDraws;
    squares += factor * factor / kDraws;
  }
  EXPECT_NEAR(sum, 1.0, 5 * 0.231 / std::sqrt(kDraws));  // even in [0.6, 1.4]
  EXPECT_NEAR(squares - sum * sum, 0.8 * 0.8 / 12.0, 0.006);
}

TEST(Grayscale, OfAllImagesIsOfHeldOutOnesToo) {
  EXPECT_TRUE(read_stage("grayscale: {p: 0.2}")->for_evaluation().empty());
  ASSERT_EQ(read_stage("grayscale: {p: 1}")->for_evaluation().size(), 1u);
  TestSample sample = oracle_sample(3);
  AugmentedSample view = sample.view();
  apply_on_host(read_stage("grayscale: {p: 1}")->for_evaluation(), 1, view);
  for (std::size_t i = 0; i < sample.pixels.size(); i += 3) {
    EXPECT_EQ(sample.pixels[i], sample.pixels[i + 1]);
    EXPECT_EQ(sample.pixels[i], sample.pixels[i + 2]);
  }
}

TEST(Stages, HeldOutImagesPassNoneThatHasChance) {
  for (const char* stage : kHostStages) EXPECT_TRUE(read_stage(stage)->for_evaluation().empty()) << stage;
  EXPECT_TRUE(random_flip()->for_evaluation().empty());
}

/// Every operation comes up: a share of 1/14 each, of which the identity, and magnitudes that change nothing, show.
TEST(TrivialAugment, DrawsFromAllOperations) {
  const Augmentations stages = {read_stage("trivial_augment: {}")};
  std::set<std::vector<std::uint8_t>> outcomes;
  int unchanged = 0, moved = 0;
  constexpr int kDraws = 2000;
  for (std::int64_t index = 0; index < kDraws; ++index) {
    TestSample sample = oracle_sample(3);
    AugmentedSample view = sample.view(index);
    apply_on_host(stages, 5, view);
    outcomes.insert(sample.pixels);
    unchanged += sample.pixels == oracle_sample(3).pixels ? 1 : 0;
    moved += sample.mask != oracle_sample(3).mask ? 1 : 0;
  }
  // Five of 14 operations move pixels, in 29 or 30 of 31 bins.
  EXPECT_NEAR(moved, kDraws * 5 / 14.0, 130);
  EXPECT_GT(unchanged, kDraws / 20);
  EXPECT_LT(unchanged, kDraws / 4);
  EXPECT_GT(outcomes.size(), 300u);
}

}  // namespace
}  // namespace bantam::stages_test
