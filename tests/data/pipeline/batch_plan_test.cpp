// What pipeline options become: the kernel's numbers by hand, and where each sample is read.
#include <cmath>
#include <set>
#include <utility>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/pipeline/pipeline.h"
#include "tests/base/config_error.h"
#include "tests/data/support.h"

namespace bantam::batch_plan_test {
namespace {

using kernels::ImagePlacement;
using testing::message_of;

std::vector<ImagePlacement> plan(const PipelineOptions& options, std::uint64_t seed, std::int64_t epoch,
                                 std::int64_t first, std::int64_t count) {
  const BatchPlanner planner(options.augmentations, batch_shape(options, {32, 32, 3}), seed);
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(1000 + i);
  std::vector<ImagePlacement> placements(order.size());
  planner.plan(order, epoch, first, placements);
  return placements;
}

bool same(const ImagePlacement& a, const ImagePlacement& b) {
  return a.top == b.top && a.left == b.left && a.flip == b.flip;
}

PipelineOptions augmented() {
  PipelineOptions options;
  options.augmentations = {random_crop({.padding = 4}), random_flip()};
  return options;
}

TEST(Jitter, DrawsOffsetAndFactorOfEachSampleAndMovesNothing) {
  PipelineOptions options;
  options.augmentations = {jitter(0.14f, 0.13f)};
  const std::vector<ImagePlacement> all = plan(options, 1, 0, 0, 4096);
  double offsets = 0, factors = 0, products = 0, squares = 0;
  for (const ImagePlacement& p : all) {
    EXPECT_TRUE(same(p, {}) && p.erase_height == 0);
    EXPECT_LE(std::abs(p.offset), 0.14f);
    EXPECT_LE(std::abs(p.factor - 1), 0.1300001f);
    const double u = p.offset / 0.14, v = (p.factor - 1) / 0.13;
    offsets += u, factors += v, products += u * v, squares += u * u;
  }
  // Means of 4096 numbers of deviation 1/√3, of products of 1/3, and of squares of √(4/45): 5 deviations each.
  EXPECT_NEAR(offsets / 4096, 0, 5 / std::sqrt(3.0) / 64);
  EXPECT_NEAR(factors / 4096, 0, 5 / std::sqrt(3.0) / 64);
  EXPECT_NEAR(products / 4096, 0, 5 / 3.0 / 64);
  EXPECT_NEAR(squares / 4096, 1 / 3.0, 5 * std::sqrt(4 / 45.0) / 64);
  const auto of = [](const ImagePlacement& p) { return std::pair(p.offset, p.factor); };
  const std::vector<ImagePlacement> part = plan(options, 1, 0, 100, 3), other = plan(options, 1, 1, 100, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(of(part[i]), of(all[100 + i])) << "by the place in the epoch, whatever the batch";
    EXPECT_NE(of(part[i]), of(other[i])) << "anew in each epoch";
  }
  EXPECT_TRUE(evaluation_pipeline(options).augmentations.empty());
}

TEST(Jitter, StandsAfterNormalizeAndWhatMovesPixels) {
  const auto error = [](const std::string& stages) {
    return testing::config_error_of([&] {
      const ConfigDocument document =
          ConfigDocument::parse("pipeline:\n" + stages + "  - batch: {size: 2}\n", "x.yaml");
      (void)read_pipeline(document.map().node("pipeline"),
                          {.size = 4, .image_shape = {8, 8, 3}, .class_names = {"a", "b"}});
    });
  };
  const std::string normalize = "  - normalize: {mean: 0.5}\n", jitter = "  - jitter: {brightness: 0.1}\n";
  EXPECT_EQ(error(normalize + "  - random_flip\n" + jitter), "nothing was thrown");
  EXPECT_EQ(error(jitter), "nothing was thrown");
  const auto expect = [&](const std::string& stages, const std::string& message) {
    const std::string got = error(stages);
    EXPECT_EQ(got.substr(0, message.size()), message) << got;
  };
  expect(jitter + normalize, "x.yaml:3:5: error: 'normalize' must come before 'jitter'");
  expect(jitter + "  - random_erasing\n", "x.yaml:3:5: error: 'random_erasing' must come before 'jitter'");
  expect("  - mixup\n" + jitter, "x.yaml:3:5: error: 'jitter' must come before 'mixup'");
  expect("  - jitter: {brightness: -1}\n", "x.yaml:2:26: error: pipeline.0.jitter.brightness: expected a number");
  expect("  - jitter: {contrast: 1.5}\n", "x.yaml:2:24: error: pipeline.0.jitter.contrast: expected a number");
  expect("  - jitter: {factor: 0.1}\n", "x.yaml:2:14: error: unknown key 'factor'");
}

TEST(BatchShape, NormalizeIsScaleThenMeanThenStd) {
  PipelineOptions options;
  options.batch_size = 6;
  options.normalize = {.scale = 0.5, .mean = {1.0, 2.0, 3.0}, .std = {2.0}};
  const auto shape = batch_shape(options, {4, 5, 3});
  EXPECT_EQ(shape.batch, 6);
  EXPECT_EQ(shape.in_h, 4);
  EXPECT_EQ(shape.out_w, 5);
  EXPECT_EQ(shape.channels, 3);
  // (x·0.5 - mean) / 2 = x·0.25 - mean/2
  for (int c = 0; c < 3; ++c) {
    EXPECT_EQ(shape.scale[c], 0.25f);
    EXPECT_EQ(shape.shift[c], -0.5f * static_cast<float>(c + 1));
  }
}

TEST(BatchShape, ACropsSizeIsTheBatchs) {
  PipelineOptions options;
  options.augmentations = {random_crop({.height = 28, .width = 40, .padding = 4, .mode = kernels::PadMode::reflect})};
  const auto shape = batch_shape(options, {32, 32, 3});
  EXPECT_EQ(shape.out_h, 28);
  EXPECT_EQ(shape.out_w, 40);
  EXPECT_EQ(shape.pad_mode, kernels::PadMode::reflect);
}

TEST(BatchShape, OneFactorServesAnyNumberOfChannelsAndVectors) {
  PipelineOptions options;
  options.normalize = {.scale = 0.5, .mean = {1.0}, .std = {2.0}};
  const auto deep = batch_shape(options, {4, 5, 12}, DType::float32);
  EXPECT_EQ(deep.channels, 12);
  EXPECT_EQ(deep.scale[0], 0.25f);
  EXPECT_EQ(deep.stored, DType::float32);
  EXPECT_EQ(finished_image(deep, {4, 5, 12}), (Shape{4, 5, 12}));
  const auto vectors = batch_shape(options, Shape{20});
  EXPECT_EQ(vectors.in_h * vectors.in_w * vectors.channels, 20);
  EXPECT_EQ(vectors.shift[0], -0.5f);
  EXPECT_EQ(finished_image(vectors, {20}), Shape{20});
}

TEST(BatchShape, RefusesWhatDoesNotFit) {
  PipelineOptions options;
  options.normalize.mean = {1.0, 2.0};
  EXPECT_CONTAINS(message_of<ShapeError>([&] {
                    (void)batch_shape(options, {4, 4, 3});
                  }),
                  "mean has 2 values, but images have 3 channels");
  options = {};
  options.augmentations = {random_crop({.height = 41, .width = 32, .padding = 4})};
  EXPECT_CONTAINS(message_of<ShapeError>([&] {
                    (void)batch_shape(options, {32, 32, 3});
                  }),
                  "a window of 41x32 does not fit an image of 32x32 padded by 4");
  options = {};
  options.normalize.mean.assign(9, 1.0);
  EXPECT_CONTAINS(message_of<ShapeError>([&] {
                    (void)batch_shape(options, {4, 4, 9});
                  }),
                  "mean has 9 values, but images of more than 8 channels have one for all");
  options = {};
  options.augmentations = {random_flip()};
  EXPECT_CONTAINS(message_of<ShapeError>([&] { (void)batch_shape(options, Shape{20}); }),
                  "random_flip needs images of height and width, but a sample is (20)");
  options = {};
  options.batch_size = 0;
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)batch_shape(options, {4, 4, 3}); }), "batch size");
}

TEST(BatchPlanner, WithoutAugmentationImagesAreReadAsTheyAre) {
  for (const ImagePlacement& p : plan({}, 1, 2, 3, 50)) EXPECT_TRUE(same(p, {}));
  EXPECT_EQ(plan({}, 1, 2, 3, 50)[7].image, 1007);
}

TEST(BatchPlanner, DependsOnSeedEpochAndPlaceOnly) {
  const auto whole = plan(augmented(), 1, 2, 0, 100), tail = plan(augmented(), 1, 2, 60, 40);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_TRUE(same(tail[i], whole[60 + i])) << i;
  const auto differences = [&](const std::vector<ImagePlacement>& other) {
    int count = 0;
    for (std::size_t i = 0; i < 100; ++i) count += !same(whole[i], other[i]);
    return count;
  };
  // 9·9·2 = 162 outcomes: two independent plans agree at about 0.6 of 100 places, and at 10 or more with a chance
  // below 1e-9.
  EXPECT_GT(differences(plan(augmented(), 1, 3, 0, 100)), 90);
  EXPECT_GT(differences(plan(augmented(), 7, 2, 0, 100)), 90);
}

TEST(BatchPlanner, EveryCornerAndBothFlipsComeUp) {
  const auto placements = plan(augmented(), 5, 0, 0, 20000);
  std::set<int> tops, lefts;
  int flips = 0;
  for (const ImagePlacement& p : placements) {
    tops.insert(p.top);
    lefts.insert(p.left);
    flips += p.flip;
    ASSERT_TRUE(p.flip == 0 || p.flip == 1);
  }
  const std::set<int> all = {-4, -3, -2, -1, 0, 1, 2, 3, 4};
  EXPECT_EQ(tops, all);
  EXPECT_EQ(lefts, all);
  EXPECT_NEAR(flips, 10000, 354);  // five standard deviations of 20,000 fair draws
}

TEST(BatchPlanner, AnAlternatingFlipIsTheSamplesWhereverItStands) {
  PipelineOptions options;
  options.augmentations = {random_crop({.padding = 4}), alternating_flip()};
  const auto whole = plan(options, 1, 2, 0, 100), elsewhere = plan(options, 1, 2, 5000, 100),
             next = plan(options, 1, 3, 0, 100), later = plan(options, 1, 4, 0, 100);
  int flips = 0, windows = 0;
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(elsewhere[i].flip, whole[i].flip) << i;
    EXPECT_EQ(next[i].flip, 1 - whole[i].flip) << i;
    EXPECT_EQ(later[i].flip, whole[i].flip) << i;
    flips += whole[i].flip;
    windows += elsewhere[i].top == whole[i].top && elsewhere[i].left == whole[i].left ? 1 : 0;
  }
  EXPECT_NEAR(flips, 50, 25);  // five standard deviations
  EXPECT_LT(windows, 20) << "the crop goes by the place in the epoch: one in 81 agrees";
}

TEST(BatchPlanner, ASmallerWindowStaysInsideAndValidationImagesAreCutFromTheMiddle) {
  PipelineOptions options = augmented();
  options.augmentations[0] = random_crop({.height = 28, .width = 24});
  std::set<int> tops;
  for (const ImagePlacement& p : plan(options, 5, 0, 0, 1000)) tops.insert(p.top);
  EXPECT_EQ(tops, (std::set<int>{0, 1, 2, 3, 4}));
  for (const ImagePlacement& p : plan(evaluation_pipeline(options), 5, 0, 0, 10)) {
    EXPECT_EQ(p.top, 2);
    EXPECT_EQ(p.left, 4);
    EXPECT_EQ(p.flip, 0);
  }
}

TEST(EvaluationPipeline, KeepsSizeAndNormalizationOnly) {
  PipelineOptions options = augmented();
  options.shuffle.emplace();
  options.drop_last = true;
  options.batch_size = 9;
  options.normalize.scale = 0.5;
  const PipelineOptions validation = evaluation_pipeline(options);
  EXPECT_FALSE(validation.shuffle);
  ASSERT_EQ(validation.augmentations.size(), 1u);
  EXPECT_EQ(validation.augmentations[0]->name(), "random_crop");
  EXPECT_FALSE(validation.drop_last);
  EXPECT_EQ(validation.batch_size, 9);
  EXPECT_EQ(validation.normalize.scale, 0.5);
  for (const ImagePlacement& p : plan(validation, 5, 0, 0, 10)) EXPECT_TRUE(same(p, {}));
}

}  // namespace
}  // namespace bantam::batch_plan_test
