// Mixing: what is drawn (Beta shares, windows by CutMix's rule), what batches then have, and what is refused.
#include "bantam/data/pipeline/mix.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bantam/base/error.h"
#include "bantam/data/pipeline/pipeline.h"
#include "tests/data/support.h"

namespace bantam::mix_test {
namespace {

using kernels::SampleMix;
using testing::message_of;

std::vector<SampleMix> plan(const MixOptions& options, std::size_t count, std::uint64_t seed = 1,
                            std::int64_t epoch = 0, std::int64_t first = 0) {
  std::vector<SampleMix> mixes(count);
  MixPlanner(options, {24, 32}, seed).plan(epoch, first, mixes);
  return mixes;
}

bool same(const SampleMix& a, const SampleMix& b) {
  return a.share == b.share && a.top == b.top && a.left == b.left && a.bottom == b.bottom && a.right == b.right;
}

bool has_window(const SampleMix& mix) { return mix.top < mix.bottom && mix.left < mix.right; }

TEST(MixPlanner, DependsOnSeedEpochAndPlaceOnly) {
  const MixOptions options{.mixup = MixStage{}, .cutmix = MixStage{}};
  const auto whole = plan(options, 100), tail = plan(options, 40, 1, 0, 60);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_TRUE(same(tail[i], whole[60 + i]));
  for (const auto& other : {plan(options, 100, 2), plan(options, 100, 1, 1)}) {
    int equal = 0;
    for (std::size_t i = 0; i < 100; ++i) equal += same(other[i], whole[i]) ? 1 : 0;
    EXPECT_LT(equal, 10);
  }
}

/// Mean 1/2 and variance 1/(4·(2·alpha + 1)) of Beta(alpha, alpha). Bounds are five standard deviations of the mean,
/// and of the variance, whose terms are below 1/4.
TEST(MixPlanner, SharesOfMixupAreBetaDistributed) {
  constexpr int kDraws = 20000;
  for (const double alpha : {0.05, 0.2, 1.0, 4.0}) {
    double mean = 0, variance = 0;
    for (const SampleMix& mix : plan({.mixup = MixStage{.alpha = alpha}}, kDraws)) {
      ASSERT_TRUE(mix.share >= 0.0f && mix.share <= 1.0f && !has_window(mix));
      mean += mix.share / kDraws;
      variance += (mix.share - 0.5) * (mix.share - 0.5) / kDraws;
    }
    const double expected = 0.25 / (2 * alpha + 1);
    EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(expected / kDraws)) << alpha;
    EXPECT_NEAR(variance, expected, 5 * 0.125 / std::sqrt(kDraws)) << alpha;
  }
}

TEST(MixPlanner, SharesOfCutmixAreWhatWindowsLeave) {
  constexpr int kDraws = 20000;
  double area = 0;
  for (const SampleMix& mix : plan({.cutmix = MixStage{}}, kDraws)) {
    ASSERT_TRUE(mix.top >= 0 && mix.left >= 0 && mix.bottom <= 24 && mix.right <= 32);
    const int covered = has_window(mix) ? (mix.bottom - mix.top) * (mix.right - mix.left) : 0;
    ASSERT_EQ(mix.share, static_cast<float>(1.0 - covered / 768.0));
    area += covered / 768.0 / kDraws;
  }
  // Uncut windows have 1/2 of the image on average. Of one with sides r a half of each is inside at the edge: a side
  // keeps r - r²/4, squared and averaged over r² even in [0, 1] that is 1/2 - 1/5 + 1/48 = 0.3208; reaches are cut to
  // whole pixels, which takes up to a pixel of each side.
  EXPECT_NEAR(area, 0.3208, 0.04);
}

TEST(MixPlanner, EachSampleIsMixedInOneWayOrNone) {
  constexpr int kDraws = 10000;
  const auto counts = [&](const MixOptions& options) {
    std::array<int, 3> count = {};  // mixup, cutmix, none
    for (const SampleMix& mix : plan(options, kDraws)) ++count[has_window(mix) ? 1 : mix.share != 1.0f ? 0 : 2];
    return count;
  };
  // Windows of less than a pixel on a side show as none: a few of a hundred with alpha 1, none with 1000 (half the
  // image).
  const MixStage even{.alpha = 1000.0};
  const auto both = counts({.mixup = even, .cutmix = even});
  EXPECT_NEAR(both[0], kDraws * 0.5, 250);
  EXPECT_NEAR(both[1], kDraws * 0.5, 250);
  const auto parts = counts({.mixup = MixStage{1000.0, 0.2}, .cutmix = MixStage{1000.0, 0.3}});
  EXPECT_NEAR(parts[0], kDraws * 0.2, 200);
  EXPECT_NEAR(parts[1], kDraws * 0.3, 230);
  EXPECT_NEAR(parts[2], kDraws * 0.5, 250);
}

DatasetFacts labelled(std::vector<SampleField> targets = {{"labels", {}, DType::int32}}) {
  return {.size = 10, .image_shape = {8, 8, 3}, .class_names = {"a", "b", "c"}, .targets = std::move(targets)};
}

TEST(BatchTargets, LabelsGetProbabilitiesBesideThem) {
  for (const MixOptions& options :
       {MixOptions{.one_hot = true}, MixOptions{.mixup = MixStage{}}, MixOptions{.cutmix = MixStage{}}}) {
    const auto targets = batch_targets(options, labelled());
    ASSERT_EQ(targets.size(), 2u);
    EXPECT_EQ(targets[0].name, "labels");
    EXPECT_EQ(targets[1], (SampleField{"targets", {3}, DType::float32}));
  }
  EXPECT_EQ(batch_targets({}, labelled()).size(), 1u);
}

TEST(BatchTargets, StoredTargetsAreMixedAsTheyAre) {
  const DatasetFacts facts = labelled({{"labels", {}, DType::int32}, {"targets", {5}, DType::float32}});
  EXPECT_EQ(batch_targets({.mixup = MixStage{}}, facts), facts.targets);
}

TEST(BatchTargets, WhatCannotBeMixedIsRefused) {
  const auto message = [](const MixOptions& options, const DatasetFacts& facts) {
    return message_of<ConfigError>([&] { (void)batch_targets(options, facts); });
  };
  const MixOptions mixup{.mixup = MixStage{}};
  EXPECT_CONTAINS(
      message(mixup, labelled({{"labels", {8, 8}, DType::int32}})),
      "mixup mixes class numbers ('labels', one a sample) and float32 'targets', but the data have 'labels' "
      "(8, 8) of int32");
  EXPECT_CONTAINS(message({.one_hot = true}, labelled({{"position", {2}, DType::float32}})),
                  "one_hot needs class numbers: 'labels', one int32 a sample");
  DatasetFacts unnamed = labelled();
  unnamed.class_names.clear();
  EXPECT_CONTAINS(message({.cutmix = MixStage{}}, unnamed), "cutmix needs the number of classes");
  DatasetFacts rows{.size = 4, .image_shape = {7}, .class_names = {"a", "b"}};
  EXPECT_CONTAINS(message({.cutmix = MixStage{}}, rows), "a row of values");
  EXPECT_NO_THROW((void)batch_targets({.mixup = MixStage{}}, rows));
  EXPECT_CONTAINS(message({.one_hot = true, .smoothing = 0.1}, labelled({{"targets", {5}, DType::float32}})),
                  "the data have 'targets' of float32 already");
}

PipelineOptions read(const std::string& stages) {
  const auto document = ConfigDocument::parse("pipeline: [" + stages + "]", "test");
  return read_pipeline(document.map().node("pipeline"), labelled());
}

TEST(MixStages, AreReadBeforeTheBatch) {
  const PipelineOptions options =
      read("mixup: {alpha: 0.4}, cutmix: {p: 0.25}, one_hot: {smoothing: 0.1}, batch: {size: 4}");
  ASSERT_TRUE(options.mix.mixup && options.mix.cutmix);
  EXPECT_EQ(options.mix.mixup->alpha, 0.4);
  EXPECT_EQ(options.mix.mixup_share(), 0.5);
  EXPECT_EQ(options.mix.cutmix->alpha, 1.0);
  EXPECT_EQ(options.mix.cutmix_share(), 0.25);
  EXPECT_EQ(options.mix.smoothing, 0.1);
  EXPECT_EQ(read("mixup, batch: {size: 4}").mix.mixup_share(), 1.0);
  const MixOptions held_out = evaluation_pipeline(options).mix;
  EXPECT_TRUE(held_out.one_hot && !held_out.mixes());
  EXPECT_EQ(held_out.smoothing, 0.1);
  EXPECT_FALSE(evaluation_pipeline(read("batch: {size: 4}")).mix.any());
  const auto message = [](const char* stages) { return message_of<ConfigError>([&] { (void)read(stages); }); };
  EXPECT_EQ(read("batch: {size: 4}, mixup").mix.mixup_share(), 1.0) << "batch may stand anywhere";
  EXPECT_CONTAINS(message("mixup: {p: 0.7}, cutmix: {p: 0.5}, batch: {size: 4}"), "their shares are 1.2 together");
  EXPECT_CONTAINS(message("mixup: {alpha: 0}, batch: {size: 4}"), "alpha");
}

}  // namespace
}  // namespace bantam::mix_test
