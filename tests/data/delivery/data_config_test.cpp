// The `data:` section: what it may say, and a table of what it may not, each with its place in the file.
#include "bantam/data/delivery/data_config.h"

#include <algorithm>

#include "bantam/base/error.h"
#include "bantam/data/formats/generated.h"
#include "bantam/kernels/input/image_batch.h"
#include "tests/data/support.h"

namespace bantam::data_config_test {
namespace {

using testing::message_of;

DataOptions read(const std::string& text) {
  return read_data_config(ConfigDocument::parse(text, "t.yaml").map().node("data"));
}

std::vector<std::string> names(const PipelineOptions& pipeline) {
  std::vector<std::string> names;
  for (const auto& augmentation : pipeline.augmentations) names.emplace_back(augmentation->name());
  return names;
}

/// The least row that a window begins at: the padding of a crop, negative.
int least_corner(const PipelineOptions& pipeline) {
  const BatchPlanner planner(pipeline.augmentations, batch_shape(pipeline, {32, 32, 3}), 1);
  const std::vector<std::int32_t> order(500);
  std::vector<kernels::ImagePlacement> placements(order.size());
  planner.plan(order, 0, 0, placements);
  int least = 0;
  for (const kernels::ImagePlacement& placement : placements) least = std::min<int>(least, placement.top);
  return least;
}

std::string with_pipeline(const std::string& stages) { return "data:\n  format: generated\n  pipeline:\n" + stages; }

TEST(DataConfig, ReadsACompleteSection) {
  const DataOptions options = read(R"(data:
  format: cifar10
  path: some/folder
  limit: 500
  verify: true
  pipeline:
    - cache: device
    - shuffle: {buffer: 100, seed: 9}
    - random_crop: {size: [28, 30], padding: 2, mode: reflect}
    - random_flip: {}
    - normalize: {scale: 0.5, mean: [1, 2, 3], std: 4}
    - batch: {size: 16, drop_last: true}
    - prefetch: {depth: 3, workers: 0}
)");
  EXPECT_EQ(options.limit, 500);
  EXPECT_TRUE(options.verify);
  const PipelineOptions& p = options.pipeline;
  EXPECT_EQ(p.cache, CacheKind::device);
  EXPECT_EQ(p.shuffle.value().buffer, 100);
  EXPECT_EQ(p.shuffle->seed, 9u);
  ASSERT_EQ(names(p), (std::vector<std::string>{"random_crop", "random_flip"}));
  const auto shape = batch_shape(p, {32, 32, 3});
  EXPECT_EQ(shape.out_h, 28);
  EXPECT_EQ(shape.out_w, 30);
  EXPECT_EQ(shape.pad_mode, kernels::PadMode::reflect);
  EXPECT_EQ(least_corner(p), -2);
  EXPECT_EQ(p.normalize.scale, 0.5);
  EXPECT_EQ(p.normalize.mean, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(p.normalize.std, (std::vector<double>{4}));
  EXPECT_EQ(p.batch_size, 16);
  EXPECT_TRUE(p.drop_last);
  EXPECT_EQ(p.prefetch.depth, 3);
  EXPECT_EQ(p.prefetch.workers, 0);
  EXPECT_EQ(train_facts(options).size, 500);
  EXPECT_EQ(test_facts(options).size, 10000);
}

/// A reader of image files that are not there.
class Photos : public SampleReader {
 public:
  explicit Photos(std::int64_t channels) : channels_(channels) {}
  DatasetFacts facts() const override {
    return {.size = 4, .image_shape = {0, 0, channels_}, .class_names = {"a", "b"}};
  }
  void read(std::int64_t, std::span<const std::span<std::byte>>) const override {}

 private:
  std::int64_t channels_;
};

TEST(DataConfig, ImageFilesHaveABackgroundAndARange) {
  static const bool added = [] {
    sample_formats().add("photos", [](ConfigMap& data) {
      const auto photos = std::make_shared<Photos>(data.integer({"channels", "Channels.", "3"}, {}, 3));
      return SampleSplits{photos, photos};
    });
    return true;
  }();
  ASSERT_TRUE(added);
  const auto read_photos = [](const std::string& keys, const std::string& format = "photos") {
    return read("data:\n  format: " + format + "\n" + keys +
                "  pipeline: [resize: {size: [4, 4]}, batch: {size: 2}]\n");
  };
  const DatasetFacts plain = train_facts(read_photos(""));
  EXPECT_EQ(plain.background, std::nullopt);
  EXPECT_EQ(plain.image_dtype, DType::uint8);
  const DataOptions options = read_photos("  background: [1, 20, 255]\n  range: stored\n");
  for (const DatasetFacts& facts : {train_facts(options), validation_facts(options)}) {
    EXPECT_EQ(facts.background, (Background{1, 20, 255}));
    EXPECT_EQ(facts.image_dtype, DType::float32);
  }
  EXPECT_EQ(batch_facts(options).image_shape, (Shape{4, 4, 3})) << "float images are resized";
  EXPECT_EQ(train_facts(read_photos("  background: white\n")).background, (Background{255, 255, 255}));
  EXPECT_EQ(train_facts(read_photos("  background: black\n")).background, (Background{}));
  EXPECT_EQ(train_facts(read_photos("  range: bytes\n")).image_dtype, DType::uint8);
  const auto error = [&](const std::string& keys, const std::string& format = "photos") {
    return message_of<ConfigError>([&] { read_photos(keys, format); });
  };
  EXPECT_CONTAINS(error("  background: mauve\n"), "t.yaml:3:");
  EXPECT_CONTAINS(error("  background: [1, 2]\n"), "expected white, black, or [red, green, blue], each 0 to 255");
  EXPECT_CONTAINS(error("  background: [1, 2, 256]\n"), "t.yaml:3:");
  EXPECT_CONTAINS(error("  channels: 4\n  background: white\n"), "images of 4 channels keep their alpha");
  EXPECT_CONTAINS(error("  range: stored\n", "generated"), "it is for formats of image files, and this one has none");
}

TEST(DataConfig, AnotherSetForValidationHasTheSameClasses) {
  const std::string pipeline = "  pipeline: [batch: {size: 8}]\n";
  EXPECT_NO_THROW(
      (void)read("data:\n  format: generated\n  validation: {format: generated, test_samples: 9}\n" + pipeline));
  const std::string message = message_of<ConfigError>([&] {
    (void)read("data:\n  format: generated\n  validation: {format: generated, labels: pixels}\n" + pipeline);
  });
  EXPECT_CONTAINS(message, "the classes of data.validation are background, disc");
  EXPECT_CONTAINS(message, "but those of the training samples are disc, ring");
}

TEST(DataConfig, StagesMayBePlainNamesAndDefaultsHold) {
  const DataOptions options =
      read(with_pipeline("    - shuffle\n    - random_flip\n    - batch: {size: 8}\n    - prefetch\n"));
  EXPECT_EQ(options.pipeline.cache, CacheKind::ram);
  EXPECT_EQ(options.pipeline.shuffle.value().buffer, 0);
  EXPECT_FALSE(options.pipeline.shuffle->seed);
  EXPECT_EQ(names(options.pipeline), std::vector<std::string>{"random_flip"});
  EXPECT_FALSE(options.pipeline.drop_last);
  EXPECT_FALSE(options.pipeline.prefetch.depth);  // auto
  EXPECT_FALSE(options.pipeline.prefetch.workers);
  EXPECT_EQ(options.limit, 0);
  EXPECT_EQ(train_facts(options).size, GeneratedOptions{}.train_samples);
}

TEST(DataConfig, StagesThatChangeNoSampleMayStandAnywhereAndAugmentationsInAnyOrder) {
  const std::vector<std::vector<std::string>> orders = {
      {"random_crop", "random_flip", "trivial_augment"}, {"random_crop", "trivial_augment", "random_flip"},
      {"random_flip", "random_crop", "trivial_augment"}, {"random_flip", "trivial_augment", "random_crop"},
      {"trivial_augment", "random_crop", "random_flip"}, {"trivial_augment", "random_flip", "random_crop"}};
  for (const char* crop :
       {"random_crop: {padding: 4}", "random_crop: {size: 32, padding: 4}", "random_crop: {size: 28}"})
    for (const std::vector<std::string>& order : orders) {
      std::string text = "    - prefetch\n    - batch: {size: 4}\n";
      for (const std::string& stage : order) text += "    - " + (stage == "random_crop" ? crop : stage) + "\n";
      const DataOptions options =
          read(with_pipeline(text + "    - shuffle\n    - normalize: {mean: 0.5}\n    - cache: ram\n"));
      EXPECT_EQ(names(options.pipeline), order) << "they run in the order of the list";
      EXPECT_TRUE(options.pipeline.shuffle.has_value());
      EXPECT_EQ(options.pipeline.batch_size, 4);
      EXPECT_NO_THROW((void)batch_shape(options.pipeline, train_facts(options)));
    }
}

TEST(DataConfig, WithoutPrefetchBatchesAreMadeWhenAskedFor) {
  const DataOptions options = read(with_pipeline("    - batch: {size: 8}\n"));
  EXPECT_EQ(options.pipeline.prefetch.workers, 0);
}

TEST(DataConfig, NumbersOfANormalizationMayBeExpressions) {
  const auto normalize = [](const std::string& text) {
    return read(with_pipeline("    - normalize: " + text + "\n    - batch: {size: 8}\n")).pipeline.normalize;
  };
  EXPECT_EQ(normalize("{scale: 1/255}").scale, 1.0 / 255);
  EXPECT_EQ(normalize("{scale: 2 * (1 + 1)}").scale, 4);
  EXPECT_EQ(normalize("{mean: [0.5, 127.5/255, -1/4]}").mean, (std::vector<double>{0.5, 0.5, -0.25}));
  EXPECT_EQ(normalize("{std: 64/255}").std, (std::vector<double>{64.0 / 255}));
  for (const char* wrong : {"{scale: 1/0}", "{scale: one}", "{std: -1/2}", "{scale: 1/}", "{scale: \"true\"}"}) {
    const std::string message = message_of<ConfigError>([&] { (void)normalize(wrong); });
    EXPECT_NE(message.find("expected a number"), std::string::npos) << wrong << ": " << message;
  }
}

TEST(DataConfig, TheResolvedTextLoadsToTheSame) {
  const ConfigDocument document =
      ConfigDocument::parse(with_pipeline("    - shuffle\n    - random_crop: {padding: 4}\n    - normalize: {mean: [1, "
                                          "2, 3]}\n    - batch: {size: 8}\n    - prefetch\n"),
                            "t.yaml");
  (void)read_data_config(document.map().node("data"));
  const DataOptions again = read(document.resolved_yaml());
  EXPECT_EQ(again.pipeline.normalize.mean, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(least_corner(again.pipeline), -4);
  EXPECT_FALSE(again.pipeline.prefetch.workers);
  EXPECT_FALSE(again.pipeline.shuffle.value().seed);
}

/// What the validation samples of a section are drawn from: training images by their bytes.
std::vector<std::vector<std::uint8_t>> images_of(BatchSource& source, Runtime& runtime) {
  const Context context = Context::make(runtime, Device::cpu(), {});
  std::vector<std::vector<std::uint8_t>> images;
  Batch batch;
  source.start(0);
  while (source.next(context, batch)) {
    const Tensor& pixels = batch.at(kImages);
    const std::size_t bytes = pixels.bytes() / static_cast<std::size_t>(batch.size);
    for (std::int64_t i = 0; i < batch.size; ++i) {
      const std::uint8_t* begin = pixels.as<std::uint8_t>() + static_cast<std::size_t>(i) * bytes;
      images.emplace_back(begin, begin + bytes);
    }
  }
  return images;
}

const std::string kSmall =
    "data:\n  format: generated\n  train_samples: 50\n  test_samples: 9\n  pipeline: [batch: {size: 8}]\n";

TEST(DataConfig, ASplitIsAShareOfTheTrainingSamples) {
  Runtime runtime({.threads = 1});
  const DataOptions whole = read(kSmall), split = read(kSmall + "  validation: {split: 0.2}\n");
  EXPECT_EQ(train_facts(split).size, 40);
  EXPECT_EQ(validation_facts(split).size, 10);
  EXPECT_EQ(test_facts(split).size, 9);
  EXPECT_EQ(cached_sets(split).size(), 3u);
  EXPECT_EQ(cached_sets(whole).size(), 2u);
  const OpenedData all = open_data(runtime, whole, Device::cpu(), 3),
                   parts = open_data(runtime, split, Device::cpu(), 3),
                   same = open_data(runtime, split, Device::cpu(), 3),
                   other = open_data(runtime, split, Device::cpu(), 4);
  EXPECT_EQ(all.test, nullptr);
  auto training = images_of(*parts.train, runtime);
  const auto held_out = images_of(*parts.validation, runtime);
  EXPECT_EQ(held_out.size(), 10u);
  EXPECT_EQ(images_of(*same.validation, runtime), held_out) << "a pure function of the seed";
  EXPECT_NE(images_of(*other.validation, runtime), held_out);
  EXPECT_EQ(images_of(*parts.test, runtime), images_of(*all.validation, runtime)) << "the test samples";
  training.insert(training.end(), held_out.begin(), held_out.end());
  auto every = images_of(*all.train, runtime);
  std::ranges::sort(training);
  std::ranges::sort(every);
  EXPECT_EQ(training, every) << "each sample is in one of the two";
}

TEST(DataConfig, ASplitMayHaveASeedOfItsOwn) {
  Runtime runtime({.threads = 1});
  const DataOptions split = read(kSmall + "  validation: {split: 0.2, seed: 5}\n");
  EXPECT_EQ(images_of(*open_data(runtime, split, Device::cpu(), 3).validation, runtime),
            images_of(*open_data(runtime, split, Device::cpu(), 4).validation, runtime));
}

TEST(DataConfig, ValidationMayBeAnotherDataSet) {
  Runtime runtime({.threads = 1});
  const DataOptions own = read(kSmall + "  validation: {test_samples: 5, seed: 9}\n");
  EXPECT_EQ(train_facts(own).size, 50);
  EXPECT_EQ(validation_facts(own).size, 5);
  EXPECT_EQ(test_facts(own).size, 9);
  const OpenedData data = open_data(runtime, own, Device::cpu(), 3);
  EXPECT_EQ(images_of(*data.validation, runtime).size(), 5u);
  EXPECT_NE(images_of(*data.validation, runtime)[0], images_of(*data.test, runtime)[0]) << "another seed's drawings";
  EXPECT_EQ(validation_facts(read(kSmall + "  validation: {from: test}\n")).size, 9);
}

TEST(DataConfig, EvaluationsMayBeOfFewerSamplesInOtherBatches) {
  Runtime runtime({.threads = 1});
  DataOptions options = read(kSmall + "  validation: {split: 0.5}\n");
  options.evaluation = {.batch_size = 6, .batches = 3};
  EXPECT_EQ(validation_facts(options).size, 18);
  const OpenedData data = open_data(runtime, options, Device::cpu(), 3);
  EXPECT_EQ(data.validation->batches_per_epoch(), 3);
  EXPECT_EQ(data.validation->batch_size(), 6);
  EXPECT_EQ(data.test->batches_per_epoch(), 2) << "9 samples, all of them";
  EXPECT_EQ(data.train->batch_size(), 8);
}

struct BadCase {
  std::string name, text, place, message;
};

void PrintTo(const BadCase& bad, std::ostream* os) { *os << bad.name; }

class BadDataConfig : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadDataConfig, IsRefusedAtItsPlace) {
  const std::string message = message_of<ConfigError>([&] { (void)read(GetParam().text); });
  EXPECT_EQ(message.rfind("t.yaml:" + GetParam().place + ": error: ", 0), 0u) << message;
  EXPECT_CONTAINS(message, GetParam().message);
}

std::string stages(const std::string& list) { return with_pipeline(list); }

INSTANTIATE_TEST_SUITE_P(
    Table, BadDataConfig,
    ::testing::Values(
        BadCase{"format", "data:\n  format: cifar11\n", "2:11", "cifar10"},
        BadCase{"no_format", "data:\n  path: x\n", "1:1", "format"},
        BadCase{"no_path", "data:\n  format: cifar10\n  pipeline: [batch: {size: 1}]\n", "1:1", "path"},
        BadCase{"path_of_generated", "data:\n  format: generated\n  path: x\n  pipeline: [{batch: {size: 1}}]\n", "3:3",
                "path"},
        BadCase{"samples", "data:\n  format: generated\n  train_samples: 0\n", "3:18", "train_samples"},
        BadCase{"limit", "data:\n  format: generated\n  limit: 0\n", "3:10", "limit"},
        BadCase{"unknown_key", "data:\n  format: generated\n  pipelin: []\n  pipeline: [{batch: {size: 1}}]\n", "3:3",
                "'pipeline'"},
        BadCase{"no_pipeline", "data:\n  format: generated\n", "1:1", "pipeline"},
        BadCase{"pipeline_is_no_list", "data:\n  format: generated\n  pipeline: {batch: 3}\n", "3:13", "list"},
        BadCase{"unknown_stage", stages("    - bacth: {size: 1}\n"), "4:7", "did you mean 'batch'"},
        BadCase{"no_batch", stages("    - shuffle\n"), "4:5", "no 'batch' stage"},
        BadCase{"batch_size", stages("    - batch: {size: 0}\n"), "4:21", "size"},
        BadCase{"batch_without_size", stages("    - batch: {drop_last: true}\n"), "4:7", "size"},
        BadCase{"batch_key", stages("    - batch: {size: 4, drop_lst: true}\n"), "4:24", "did you mean 'drop_last'"},
        BadCase{"twice", stages("    - batch: {size: 1}\n    - batch: {size: 2}\n"), "5:7",
                "'batch' is already in the pipeline"},
        BadCase{"bytes_late", stages("    - normalize: {scale: 0.1}\n    - trivial_augment\n    - batch: {size: 1}\n"),
                "5:7", "'trivial_augment' must come before 'normalize'"},
        BadCase{"cache_where", stages("    - cache: tape\n    - batch: {size: 1}\n"), "4:14", "ram"},
        BadCase{"cache_folder", stages("    - cache: {dsk: x}\n    - batch: {size: 1}\n"), "4:15", "disk"},
        BadCase{"on_error", "data:\n  format: generated\n  on_error: ignore\n  pipeline: [{batch: {size: 1}}]\n",
                "3:13", "skip"},
        BadCase{"evaluation_batch",
                stages("    - batch: {size: 1}\n") + "  evaluation: {pipeline: [batch: {size: 2}]}\n", "5:27",
                "'batch' is no stage of an evaluation"},
        BadCase{"buffer", stages("    - shuffle: {buffer: 0}\n    - batch: {size: 1}\n"), "4:25", "buffer"},
        BadCase{"std", stages("    - normalize: {std: 0}\n    - batch: {size: 1}\n"), "4:24", "std"},
        BadCase{"channels", stages("    - normalize: {mean: [1, 2]}\n    - batch: {size: 1}\n"), "4:18",
                "mean has 2 values"},
        BadCase{"crop_size", stages("    - random_crop: {size: 41, padding: 4}\n    - batch: {size: 1}\n"), "4:20",
                "41x41 does not fit"},
        BadCase{"crop_mode", stages("    - random_crop: {mode: mirror}\n    - batch: {size: 1}\n"), "4:27", "reflect"},
        BadCase{"crop_of_nothing", stages("    - random_crop\n    - batch: {size: 1}\n"), "4:7",
                "random_crop needs a size or padding"},
        BadCase{"crop_mode_only", stages("    - random_crop: {mode: reflect}\n    - batch: {size: 1}\n"), "4:7",
                "random_crop needs a size or padding"},
        BadCase{"crop_key", stages("    - random_crop: {siz: 28}\n    - batch: {size: 1}\n"), "4:21",
                "unknown key 'siz' in data.pipeline.0.random_crop; did you mean 'size'?"},
        BadCase{"scale_of_float32", stages("    - normalize: {scale: 1e39}\n    - batch: {size: 1}\n"), "4:18",
                "channel 0 is multiplied by 1e+39"},
        BadCase{"shift_of_float32", stages("    - normalize: {mean: [0, 1, 0], std: 1e-300}\n    - batch: {size: 1}\n"),
                "4:18", "float32 cannot hold it"},
        BadCase{"no_whole_batch",
                "data:\n  format: generated\n  limit: 5\n  pipeline:\n    - shuffle\n"
                "    - batch: {size: 8, drop_last: true}\n",
                "6:7", "a batch of 8 with drop_last drops all 5 images"},
        BadCase{"crop_late",
                stages("    - normalize: {mean: 1}\n    - random_crop: {padding: 4}\n    - batch: {size: 1}\n"), "5:7",
                "must come before 'normalize'"},
        BadCase{"flip_key", stages("    - random_flip: {often: 1}\n    - batch: {size: 1}\n"), "4:21",
                "unknown key 'often'"},
        BadCase{"workers", stages("    - batch: {size: 1}\n    - prefetch: {workers: many}\n"), "5:27", "auto"},
        BadCase{"depth", stages("    - batch: {size: 1}\n    - prefetch: {depth: 0}\n"), "5:25", "depth"}),
    [](const auto& info) { return info.param.name; });

TEST(OpenData, TrainAndValidationSourcesFollowTheSection) {
  Runtime runtime({.threads = 2});
  const DataOptions options = read(R"(data:
  format: generated
  train_samples: 50
  test_samples: 23
  limit: 45
  pipeline:
    - shuffle
    - random_crop: {size: 28, padding: 0}
    - batch: {size: 10, drop_last: true}
)");
  const OpenedData data = open_data(runtime, options, Device::cpu(), 3);
  EXPECT_EQ(data.train->image_shape(), (Shape{28, 28, 3}));
  EXPECT_EQ(data.train->classes(), 10);
  EXPECT_EQ(data.train->class_names()[3], "triangle");
  EXPECT_EQ(data.train->batches_per_epoch(), 4);
  EXPECT_EQ(data.validation->batches_per_epoch(), 3);
  EXPECT_EQ(data.validation->size_of(2), 3);
  const Context context = Context::make(runtime, Device::cpu());
  const auto a = testing::whole_epoch(*data.validation, context, 0),
             b = testing::whole_epoch(*data.validation, context, 1);
  EXPECT_EQ(a, b);  // nothing random in validation batches
  EXPECT_EQ(a.at(0).labels, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_NE(testing::whole_epoch(*data.train, context, 0), testing::whole_epoch(*data.train, context, 1));
}

// Stages of their own, and what they do not say from training.
TEST(OpenData, EvaluationsMayHaveStagesOfTheirOwn) {
  Runtime runtime({.threads = 1});
  const auto first = [&](const std::string& evaluation) {
    const DataOptions options = read(
        "data:\n  format: generated\n  train_samples: 20\n  test_samples: 10\n  pipeline:\n    - center_crop: {size: "
        "24}\n    - normalize: {scale: 0.5}\n    - batch: {size: 10}\n" +
        evaluation);
    const OpenedData data = open_data(runtime, options, Device::cpu(), 3);
    return testing::whole_epoch(*data.validation, Context::make(runtime, Device::cpu()), 0).at(0).images;
  };
  const std::vector<float> cropped = first("");
  const std::vector<float> resized = first("  evaluation: {pipeline: [resize: {size: [24, 24]}]}\n");
  const std::vector<float> doubled =
      first("  evaluation: {pipeline: [center_crop: {size: 24}, normalize: {scale: 1}]}\n");
  ASSERT_EQ(resized.size(), cropped.size());
  EXPECT_NE(resized, cropped);
  for (std::size_t i = 0; i < cropped.size(); ++i) ASSERT_EQ(doubled[i], 2 * cropped[i]);
}

TEST(OpenData, PackedFilesLieInTheRunsFolderOrWhereItIsSaid) {
  Runtime runtime({.threads = 1});
  const testing::TemporaryFolder folder;
  const auto open = [&](const std::string& cache, const std::string& run_folder) {
    DataOptions options = read(
        "data:\n  format: generated\n  train_samples: 20\n  test_samples: 10\n  on_error: skip\n"
        "  pipeline: [cache: " +
        cache + ", batch: {size: 10}]\n");
    EXPECT_TRUE(options.skips_broken);
    options.run_folder = run_folder;
    const OpenedData data = open_data(runtime, options, Device::cpu(), 3);
    EXPECT_EQ(data.broken->count(), 0);
    return testing::whole_epoch(*data.train, Context::make(runtime, Device::cpu()), 0);
  };
  const auto kept = open("ram", "");
  EXPECT_EQ(open("disk", (folder.path() / "run").string()), kept);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "run" / "samples-train.cache"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "run" / "samples-validation.cache"));
  EXPECT_EQ(open("{disk: " + (folder.path() / "own").string() + "}", ""), kept);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "own" / "samples-train.cache"));
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)open("disk", ""); }), "name one by cache: {disk: FOLDER}");
}

TEST(OpenData, AMetaDeviceNeedsNoFiles) {
  Runtime runtime({.threads = 1});
  for (const Device target : {Device::cpu(), Device::cuda(0)}) {
    for (const std::string cache : {"ram", "device"}) {
      const DataOptions options =
          read("data:\n  format: cifar10\n  path: /nowhere\n  limit: 100\n  pipeline:\n    - cache: " + cache +
               "\n    - shuffle\n    - batch: {size: 64}\n    - prefetch\n");
      const Device meta = Device::meta_of(target);
      const OpenedData data = open_data(runtime, options, meta, 1);
      const Context context = Context::make(runtime, meta, Precision{PrecisionKind::mixed_float16});
      Batch batch;
      data.train->start(0, 1);
      ASSERT_TRUE(data.train->next(context, batch));
      EXPECT_EQ(batch.size, 36);
      EXPECT_EQ(batch.index, 1);
      EXPECT_EQ(batch.at(kImages).shape(), (Shape{36, 32, 32, 3}));
      EXPECT_EQ(batch.at(kImages).dtype(), DType::float16);
      EXPECT_EQ(batch.at(kLabels).shape(), (Shape{36}));
      EXPECT_FALSE(data.train->next(context, batch));
      if (target.kind == DeviceKind::cuda && cache == "device") {
        // Both splits lie on the device.
        EXPECT_GE(runtime.allocator(meta).stats().by_category[Category::input], (100u + 10000u) * 3072u);
      }
    }
  }
}

TEST(OpenData, ABatchLargerThanTheSetIsRefusedWithDropLast) {
  Runtime runtime({.threads = 1});
  DataOptions options = read(with_pipeline("    - batch: {size: 8, drop_last: true}\n"));
  options.limit = 5;
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)open_data(runtime, options, Device::cpu(), 0); }),
                  "drops all 5 images");
}

TEST(OpenData, MissingFilesAreADataError) {
  Runtime runtime({.threads = 1});
  const DataOptions options = read("data:\n  format: cifar10\n  path: /nowhere\n  pipeline: [{batch: {size: 4}}]\n");
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)open_data(runtime, options, Device::cpu(), 0); }),
                  "/nowhere/data_batch_1.bin");
}

}  // namespace
}  // namespace bantam::data_config_test
