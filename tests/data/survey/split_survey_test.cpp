// Surveys of small sets whose every figure is known by hand, and pictures of what pipelines make of samples.
#include "bantam/data/survey/split_survey.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/images/encode.h"
#include "bantam/data/survey/pipeline_steps.h"
#include "bantam/data/survey/sample_views.h"
#include "bantam/data/survey/spread_samples.h"
#include "tests/data/support.h"

namespace bantam::split_survey_test {
namespace {

/// PNG files of one grey each, 10·i, of 2 x (i + 1) pixels; class i % 2 of three, but the file of sample 5 is cut
/// short.
class Files : public SampleReader {
 public:
  DatasetFacts facts() const override {
    return {.size = 8, .image_shape = {0, 0, 3}, .class_names = {"even", "odd", "none"}};
  }
  std::uint64_t encoded_bytes(std::int64_t) const override { return 100; }
  std::string name_of(std::int64_t index) const override { return fmt::format("{}.png", index); }
  void read(std::int64_t, std::span<const std::span<std::byte>>) const override { FAIL() << "images are encoded"; }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    Image image;
    image.reshape({2, index + 1}, index == 7 ? 3 : 1);
    std::fill(image.pixels.begin(), image.pixels.end(), static_cast<std::uint8_t>(10 * index));
    const std::string file = encode_png(image);
    fields[0].resize(index == 5 ? 40 : file.size());
    std::memcpy(fields[0].data(), file.data(), fields[0].size());
    const auto label = static_cast<std::int32_t>(index % 2);
    fields[1].resize(sizeof(label));
    std::memcpy(fields[1].data(), &label, sizeof(label));
  }
};

TEST(SplitSurvey, CountsClassesSizesAndChannelsOfFiles) {
  for (const int threads : {1, 3}) {
    const SplitSurvey survey = survey_split(Files(), {.threads = threads});
    EXPECT_EQ(survey.class_counts, (std::vector<std::int64_t>{4, 4, 0}));
    EXPECT_EQ(survey.imbalance(), 1.0);
    EXPECT_EQ(survey.read, 7);
    EXPECT_EQ(survey.smallest, (ImageSize{2, 1}));
    EXPECT_EQ(survey.median, (ImageSize{2, 4}));
    EXPECT_EQ(survey.largest, (ImageSize{2, 8}));
    EXPECT_EQ(survey.stored_channels, (std::map<std::int64_t, std::int64_t>{{1, 6}, {3, 1}}));
    EXPECT_EQ(survey.stored_bytes, 8 * (100 + 4u));
    ASSERT_EQ(survey.broken.size(), 1u);
    EXPECT_EQ(survey.broken[0].index, 5);
    EXPECT_EQ(survey.broken[0].name, "5.png");
    EXPECT_FALSE(survey.broken[0].reason.empty());
    // Grey 10·i on 2·(i + 1) pixels, without i = 5.
    double pixels = 0, sum = 0, squares = 0;
    for (const int i : {0, 1, 2, 3, 4, 6, 7}) {
      pixels += 2 * (i + 1);
      sum += 2 * (i + 1) * 10 * i;
      squares += 2 * (i + 1) * 100 * i * i;
    }
    ASSERT_EQ(survey.channels.size(), 3u);
    for (const ChannelStatistics& channel : survey.channels) {
      EXPECT_NEAR(channel.mean, sum / pixels, 1e-9);
      EXPECT_NEAR(channel.deviation, std::sqrt(squares / pixels - std::pow(sum / pixels, 2)), 1e-9);
      EXPECT_EQ(channel.least, 0);
      EXPECT_EQ(channel.most, 70);
    }
  }
}

/// Files as Pillow and cameras write them: transparent, turned, of 16 bits that need 12.
class Mixed : public Files {
 public:
  DatasetFacts facts() const override {
    return {.size = 4, .image_shape = {0, 0, 1}, .class_names = {"even", "odd"}, .image_dtype = type};
  }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    Files::fetch(0, fields);
    std::string file;
    Image image;
    image.reshape({1, 2}, 4);
    if (index == 0) file = encode_png(image);
    if (index == 1) file = std::string("P5 2 1 65535\n\x0F\xFF\x00\x07", 17);
    if (index == 2) file = std::string("P5 2 1 65535\n\x08\x01\x00\x07", 17);
    if (index == 3) file = std::string("P5 2 1 255\n\x08\x01", 13);
    fields[0].resize(file.size());
    std::memcpy(fields[0].data(), file.data(), file.size());
  }
  DType type = DType::uint8;
};

TEST(SplitSurvey, CountsTransparencyAndValuesOfSixteenBits) {
  Mixed files;
  const SplitSurvey bytes = survey_split(files, {.threads = 1});
  EXPECT_TRUE(bytes.broken.empty());
  EXPECT_EQ(bytes.with_alpha(), 1);
  EXPECT_EQ(bytes.wide, 2);
  EXPECT_EQ(bytes.wide_most, 0x0FFF);
  EXPECT_EQ(bytes.wide_bits(), 12);
  EXPECT_EQ(bytes.types, (std::map<std::string, std::int64_t>{{"PNG", 1}, {"PNM", 3}}));
  EXPECT_EQ(bytes.channels[0].most, 16) << "4095 of 65535 as a byte";
  files.type = DType::float32;  // range: stored
  EXPECT_EQ(survey_split(files, {.threads = 1}).channels[0].most, 4095);
}

/// A grey image and its mask of 2 x 2: sample i has the numbers 0, 1, 255 and i.
class Masks : public Files {
 public:
  DatasetFacts facts() const override {
    DatasetFacts facts{.size = 4, .image_shape = {0, 0, 1}, .class_names = {"a", "b", "c"}};
    facts.targets = {{"labels", {0, 0}, DType::int32, FieldEncoding::mask}};
    facts.ignored_label = 255;
    return facts;
  }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    Image image;
    image.reshape({2, 2}, 1);
    image.pixels = {0, 1, 255, static_cast<std::uint8_t>(index)};
    const std::string file = encode_png(image);
    for (std::vector<std::byte>& field : fields) {
      field.resize(file.size());
      std::memcpy(field.data(), file.data(), file.size());
    }
  }
};

TEST(SplitSurvey, AMaskOfANumberThatIsNoClassIsBroken) {
  const SplitSurvey survey = survey_split(Masks(), {.most_bytes = 0});
  ASSERT_EQ(survey.broken.size(), 1u);
  EXPECT_EQ(survey.broken[0].name, "3.png");
  EXPECT_CONTAINS(
      survey.broken[0].reason,
      "'labels' has the number 3 at column 1, row 1, but the data have 3 classes, from 0, and 255 for none");
  EXPECT_EQ(survey.class_counts, (std::vector<std::int64_t>{4, 4, 1}));
  EXPECT_EQ(survey.read, 3);
}

TEST(SplitSurvey, ReadsAShareOfALargeSet) {
  Runtime runtime({.threads = 2});
  const auto set = testing::ramp_dataset(runtime, 1000);
  const std::uint64_t each = 4 * 5 * 3 + 4;
  EXPECT_EQ(survey_split(*reader_of(set), {.most_bytes = 0}).read, 1000);
  EXPECT_EQ(survey_split(*reader_of(set), {.most_bytes = 300 * each}).read, 300);
  const SplitSurvey few = survey_split(*reader_of(set), {.most_bytes = 1});
  EXPECT_EQ(few.read, 100);
  std::int64_t counted = 0;
  for (const std::int64_t count : few.class_counts) counted += count;
  EXPECT_EQ(counted, 1000);
}

/// Three features, and several labels a sample: class c has every (c + 1)-th sample.
class Rows : public SampleReader {
 public:
  DatasetFacts facts() const override {
    return {.size = 12,
            .image_shape = {3},
            .class_names = {"a", "b"},
            .targets = {{"targets", {2}, DType::float32}},
            .image_dtype = DType::float32};
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    const std::array<float, 3> features = {static_cast<float>(index), 1.0f, -2.0f};
    const std::array<float, 2> labels = {1.0f, index % 2 == 0 ? 1.0f : 0.0f};
    std::memcpy(fields[0].data(), features.data(), sizeof(features));
    std::memcpy(fields[1].data(), labels.data(), sizeof(labels));
  }
};

TEST(SplitSurvey, KnowsVectorsAndSeveralLabels) {
  const SplitSurvey survey = survey_split(Rows(), {});
  EXPECT_EQ(survey.class_counts, (std::vector<std::int64_t>{12, 6}));
  EXPECT_EQ(survey.imbalance(), 2.0);
  ASSERT_EQ(survey.channels.size(), 3u);
  EXPECT_NEAR(survey.channels[0].mean, 5.5, 1e-9);
  EXPECT_NEAR(survey.channels[0].deviation, std::sqrt(143 / 12.0), 1e-6);
  EXPECT_EQ(survey.channels[2].mean, -2);
  EXPECT_EQ(survey.channels[2].deviation, 0);
}

TEST(PipelineSteps, TellsSizes) {
  PipelineOptions options;
  options.augmentations = {random_crop({.height = 3, .width = 3}), random_flip()};
  options.normalize.scale = 0.5;
  const DatasetFacts facts{.size = 1, .image_shape = {4, 5, 3}};
  const auto steps = pipeline_steps(options, facts);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].name, "random_crop");
  EXPECT_EQ(steps[0].size, (ImageSize{3, 3}));
  EXPECT_TRUE(steps[0].chance);
  EXPECT_EQ(steps[2].name, "normalize");
  EXPECT_EQ(steps[2].size, (ImageSize{3, 3}));
  EXPECT_FALSE(steps[2].chance);
}

TEST(PipelineSteps, TellsTheShorterSideOfImagesOfDifferingSizes) {
  PipelineOptions options;
  options.augmentations = {random_flip(), resize({.height = 73}), center_crop({64, 64})};
  const auto steps = pipeline_steps(options, {.size = 1, .image_shape = {0, 0, 3}});
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].shorter_side, 0) << "as stored";
  EXPECT_EQ(steps[1].shorter_side, 73);
  EXPECT_EQ(steps[1].size, ImageSize{});
  EXPECT_EQ(steps[2].shorter_side, 0);
  EXPECT_EQ(steps[2].size, (ImageSize{64, 64}));
}

TEST(SampleViews, ShowsPixelsWithoutTheirNormalization) {
  Runtime runtime({.threads = 1});
  const auto set = testing::ramp_dataset(runtime, 6);
  PipelineOptions pipeline;
  pipeline.shuffle.emplace();
  pipeline.normalize = {.scale = 1.0 / 255, .mean = {0.1, 0.2, 0.3}, .std = {0.5, 0.6, 0.7}};
  pipeline.augmentations = {random_flip()};
  const auto views = sample_views(runtime, reader_of(set), pipeline, 3, 8);
  ASSERT_EQ(views.size(), 8u);
  std::size_t mirrored = 0, same = 0;
  for (const auto& epoch : views) {
    ASSERT_EQ(epoch.size(), 6u);
    for (std::int64_t s = 0; s < 6; ++s) {
      const SampleView& view = epoch[static_cast<std::size_t>(s)];
      EXPECT_EQ(view.target, set->class_names()[static_cast<std::size_t>(testing::ramp_label(s, 3))]);
      Image stored, flipped;
      for (Image* image : {&stored, &flipped}) image->reshape({4, 5}, 3);
      for (std::int64_t i = 0; i < 4 * 5 * 3; ++i) {
        const std::int64_t row = i / 15, column = i / 3 % 5, c = i % 3;
        stored.pixels[static_cast<std::size_t>(i)] = testing::ramp_pixel(s, i);
        flipped.pixels[static_cast<std::size_t>(row * 15 + (4 - column) * 3 + c)] = testing::ramp_pixel(s, i);
      }
      same += view.image.pixels == stored.pixels;
      mirrored += view.image.pixels == flipped.pixels;
    }
  }
  EXPECT_EQ(same + mirrored, 48u);
  EXPECT_GT(same, 10u);
  EXPECT_GT(mirrored, 10u);
}

TEST(SampleViews, WritesTargetsInWords) {
  Runtime runtime({.threads = 1});
  const auto views = sample_views(runtime, first_samples(std::make_shared<Rows>(), 2), {}, 3, 1);
  EXPECT_EQ(views[0][0].target, "1 a, 1 b");
  EXPECT_EQ(views[0][1].target, "1 a");
  EXPECT_TRUE(views[0][0].image.pixels.empty());
}

TEST(EncodePng, RefusesWhatAPngCannotHold) {
  Image image;
  EXPECT_THROW((void)encode_png(image), ShapeError);
  image.reshape({2, 2}, 2);
  EXPECT_EQ(testing::message_of<ShapeError>([&] { (void)encode_png(image); }), "a PNG of 2 channels: it has 1, 3 or 4");
}

using Chosen = std::vector<std::int32_t>;

TEST(SpreadSamples, HaveAsManyOfEachClassAsThereAre) {
  // Files: 8 samples, even and odd in turn.
  EXPECT_EQ(spread_samples(Files(), 2), (Chosen{4, 5})) << "the middle ones of both classes";
  EXPECT_EQ(spread_samples(Files(), 4), (Chosen{2, 3, 6, 7}));
  EXPECT_EQ(spread_samples(Files(), 100), (Chosen{0, 1, 2, 3, 4, 5, 6, 7}));
  const std::vector<std::int64_t> odd = {1, 3, 5};
  EXPECT_EQ(spread_samples(Files(), 4, odd), (Chosen{0, 4, 6, 7})) << "where a class ends, others go on";
  EXPECT_EQ(spread_samples(Files(), 0), Chosen{});
}

}  // namespace
}  // namespace bantam::split_survey_test
