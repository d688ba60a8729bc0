// Files of sizes of their own through region and host stages: pixels by hand, masks that follow, the same bits whatever
// caches and whoever makes the batches, planned memory, and samples that cannot be decoded.
#include "bantam/base/config/config.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/data/images/resample.h"
#include "tests/data/delivery/encoded_fixture.h"
#include "tests/data/delivery/loader_fixture.h"

namespace bantam::encoded_samples_test {
namespace {

using testing::HostBatch;
using testing::message_of;
using testing::PngSamples;
using testing::SomewhereIn;
using testing::SwapChannels;
using testing::WholeTo;

constexpr ImageSize kWindow{9, 12};
constexpr std::size_t kValues = 9 * 12 * 3;

class EncodedSamplesTest : public LoaderTest {
 protected:
  std::unique_ptr<ImageBatchSource> open(std::shared_ptr<const SampleReader> reader, PipelineOptions pipeline,
                                         bool staged = false, std::shared_ptr<BrokenSamples> broken = nullptr) {
    return std::make_unique<ImageBatchSource>(*runtime_, std::move(reader),
                                              LoaderOptions{.pipeline = std::move(pipeline),
                                                            .device = GetParam(),
                                                            .seed = 1,
                                                            .packed_file = folder_.path() / "samples.cache",
                                                            .broken = std::move(broken),
                                                            .staged_on_cpu = staged});
  }

  testing::TemporaryFolder folder_;
};

PipelineOptions with(Augmentations augmentations) {
  PipelineOptions options = plain();
  options.augmentations = std::move(augmentations);
  return options;
}

TEST_P(EncodedSamplesTest, ASampleIsItsFilesWindow) {
  const auto stage = std::make_shared<SomewhereIn>(kWindow);
  const auto batches = testing::whole_epoch(*open(std::make_shared<PngSamples>(kSamples), with({stage})), context(), 3);
  std::int64_t index = 0;
  for (const HostBatch& batch : batches) {
    EXPECT_EQ(batch.shape, (Shape{batch.size, 9, 12, 3}));
    for (std::size_t b = 0; b < batch.labels.size(); ++b, ++index) {
      EXPECT_EQ(batch.labels[b], index % 4);
      const ImageSize size = PngSamples::size_of_image(index);
      PhiloxSequence random = stage_random(*stage, 1, 3, index);
      const Sampling at = stage->region(size, random);
      const std::vector<std::uint8_t> whole = PngSamples::pixels(index);
      for (std::size_t v = 0; v < kValues; ++v) {
        const auto row = static_cast<std::int64_t>(v / 36), column = static_cast<std::int64_t>(v / 3 % 12);
        const std::int64_t from = at.left + (at.mirrored ? 11 - column : column);
        const auto pixel = static_cast<std::size_t>((at.top + row) * size.width + from);
        ASSERT_EQ(batch.images[b * kValues + v], static_cast<float>(whole[pixel * 3 + v % 3])) << index << " " << v;
      }
    }
  }
  EXPECT_EQ(index, kSamples);
}

TEST_P(EncodedSamplesTest, TheSameBitsForAnyCacheWorkersAndRestart) {
  const Augmentations whole = {std::make_shared<WholeTo>(ImageSize{15, 16})};
  const Augmentations chance = {std::make_shared<SomewhereIn>(ImageSize{15, 16})};
  const Augmentations changed = {std::make_shared<SwapChannels>(), whole[0]};
  for (const Augmentations& first : {whole, chance, changed}) {
    PipelineOptions pipeline = full();
    pipeline.augmentations.insert(pipeline.augmentations.begin(), first.begin(), first.end());
    std::vector<HostBatch> reference;
    for (const CacheKind cache :
         {CacheKind::ram, CacheKind::automatic, CacheKind::off, CacheKind::disk, CacheKind::device}) {
      if (cache == CacheKind::device && first != whole) continue;
      for (const std::int64_t workers : {0, 1, 4}) {
        for (const bool staged : {false, true}) {
          pipeline.cache = cache;
          pipeline.prefetch = {.depth = workers + 1, .workers = workers};
          const auto source = open(std::make_shared<PngSamples>(kSamples), pipeline, staged);
          const std::vector<HostBatch> batches = testing::whole_epoch(*source, context(), 2);
          if (reference.empty()) reference = batches;
          ASSERT_EQ(batches.size(), 7u);
          EXPECT_EQ(batches, reference) << "workers " << workers << ", staged " << staged;
          source->start(2, 5);
          EXPECT_EQ(testing::rest_of_epoch(*source, context()),
                    std::vector<HostBatch>(reference.begin() + 5, reference.end()));
        }
      }
    }
  }
}

// Images so large that several workers make one batch.
TEST_P(EncodedSamplesTest, WorkersShareABatchWithoutAChangeOfBits) {
  PipelineOptions pipeline = full();
  pipeline.augmentations.insert(pipeline.augmentations.begin(), std::make_shared<WholeTo>(ImageSize{150, 160}));
  std::vector<HostBatch> reference;
  for (const CacheKind cache : {CacheKind::off, CacheKind::disk, CacheKind::ram}) {
    for (const std::int64_t workers : {0, 1, 4}) {
      for (const bool staged : {false, true}) {
        pipeline.cache = cache;
        pipeline.prefetch = {.depth = 2, .workers = workers};
        const auto source = open(std::make_shared<PngSamples>(19), pipeline, staged);
        const std::vector<HostBatch> batches = testing::whole_epoch(*source, context(), 1);
        if (reference.empty()) reference = batches;
        ASSERT_EQ(batches.size(), 3u);
        EXPECT_TRUE(batches == reference) << "workers " << workers << ", staged " << staged;
      }
    }
  }
}

// What has no chance is done once, as part of reading; before chance comes in, the files are what a cache keeps.
TEST_P(EncodedSamplesTest, ACacheFetchesOnce) {
  for (const CacheKind cache : {CacheKind::ram, CacheKind::off, CacheKind::disk}) {
    for (const bool chance : {false, true}) {
      std::shared_ptr<const Augmentation> stage = std::make_shared<WholeTo>(kWindow);
      if (chance) stage = std::make_shared<SomewhereIn>(kWindow);
      PipelineOptions pipeline = with({stage});
      pipeline.cache = cache;
      const auto reader = std::make_shared<PngSamples>(kSamples);
      // A packed file's digest looks at some samples beforehand; it is there the second time.
      if (cache == CacheKind::disk) (void)open(reader, pipeline);
      reader->fetched = 0;
      const auto source = open(reader, pipeline);
      const std::int64_t looked_at = reader->fetched;
      for (int epoch = 0; epoch < 2; ++epoch) (void)testing::whole_epoch(*source, context(), epoch);
      if (cache == CacheKind::disk) {
        EXPECT_LE(looked_at, 32);
        EXPECT_EQ(reader->fetched, looked_at);
      } else {
        EXPECT_EQ(reader->fetched, cache == CacheKind::off ? 2 * kSamples : kSamples);
      }
    }
  }
}

// The mask's class is the image's red value, of every pixel, wherever the window lies; also where a stage of host form
// changes the image at its own size first.
TEST_P(EncodedSamplesTest, MasksMoveWithTheirImages) {
  const Augmentations window = {std::make_shared<SomewhereIn>(ImageSize{12, 14}),
                                std::make_shared<SomewhereIn>(kWindow)};
  for (const CacheKind cache : {CacheKind::ram, CacheKind::off, CacheKind::disk}) {
    PipelineOptions pipeline = with(window);
    pipeline.cache = cache;
    const auto source = open(std::make_shared<PngSamples>(kSamples, true), pipeline);
    EXPECT_EQ(source->tensors()[1].shape, (Shape{9, 12}));
    for (const HostBatch& batch : testing::whole_epoch(*source, context(), 1)) {
      ASSERT_EQ(batch.labels.size() * 3, batch.images.size());
      for (std::size_t p = 0; p < batch.labels.size(); ++p)
        ASSERT_EQ(static_cast<float>(batch.labels[p]), batch.images[p * 3]);
    }
  }
}

TEST_P(EncodedSamplesTest, AMaskIsResampledToTheNearest) {
  const auto batches = testing::whole_epoch(
      *open(std::make_shared<PngSamples>(5, true), with({std::make_shared<WholeTo>(kWindow)})), context(), 0);
  for (std::int64_t index = 0; index < 5; ++index) {
    Image mask, small;
    mask.reshape(PngSamples::size_of_image(index), 1);
    const std::vector<std::uint8_t> image = PngSamples::pixels(index);
    for (std::size_t p = 0; p < mask.pixels.size(); ++p) mask.pixels[p] = image[p * 3];
    resample(mask, {.window = mask.size, .size = kWindow}, Interpolation::nearest, small);
    for (std::size_t p = 0; p < small.pixels.size(); ++p)
      ASSERT_EQ(batches[0].labels[static_cast<std::size_t>(index) * small.pixels.size() + p], small.pixels[p]);
  }
}

TEST_P(EncodedSamplesTest, WithoutAStageThatSetsASizeTheDataAreRefused) {
  EXPECT_CONTAINS(message_of<ShapeError>([&] { (void)open(std::make_shared<PngSamples>(9), plain()); }),
                  "add `resize: {size: [H, W]}` or `random_resized_crop: {size: N}`");
  PipelineOptions pipeline = with({std::make_shared<SomewhereIn>(kWindow)});
  pipeline.cache = CacheKind::device;
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)open(std::make_shared<PngSamples>(9), pipeline, true); }),
                  "cache: device does not go with somewhere_in");
}

// A file cut short is an error that names it; or the next one comes in its place, with the same bits whatever caches.
TEST_P(EncodedSamplesTest, ABrokenFileIsNamedOrReplaced) {
  const std::vector<std::int64_t> broken_files = {3, 4, kSamples - 1};
  const auto reader = std::make_shared<PngSamples>(kSamples, false, broken_files);
  for (const bool chance : {false, true}) {
    std::shared_ptr<const Augmentation> stage = std::make_shared<WholeTo>(kWindow);
    if (chance) stage = std::make_shared<SomewhereIn>(kWindow);
    for (const CacheKind cache : {CacheKind::ram, CacheKind::off, CacheKind::disk}) {
      PipelineOptions pipeline = with({stage});
      pipeline.cache = cache;
      EXPECT_CONTAINS(message_of<DataError>([&] { (void)testing::whole_epoch(*open(reader, pipeline), context(), 0); }),
                      "3.png: ");
      const auto broken = std::make_shared<BrokenSamples>();
      const auto batches = testing::whole_epoch(*open(reader, pipeline, false, broken), context(), 0);
      std::vector<std::int32_t> labels;
      for (const HostBatch& batch : batches) labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
      for (std::size_t i = 0; i < labels.size(); ++i)
        EXPECT_EQ(labels[i], i == 3 || i == 4 ? 5 % 4 : i + 1 == labels.size() ? 0 : static_cast<std::int32_t>(i % 4));
      EXPECT_EQ(broken->count(), 3);
      ASSERT_EQ(broken->first().size(), 3u);
      EXPECT_EQ(broken->first()[0].name, "3.png");
      EXPECT_CONTAINS(broken->first()[0].reason, "3.png: ");
    }
  }
}

// A file that is not there: what is told of it does not speak of its decoding.
TEST_P(EncodedSamplesTest, AFileThatCannotBeReadIsReplacedWhateverCache) {
  class WithoutFile : public PngSamples {
   public:
    WithoutFile() : PngSamples(kSamples) {}
    void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
      if (index == 3) throw DataError("3.png: could not be read: it is not there");
      PngSamples::fetch(index, fields);
    }
  };
  for (const CacheKind cache : {CacheKind::ram, CacheKind::off, CacheKind::disk}) {
    PipelineOptions pipeline = with({std::make_shared<SomewhereIn>(kWindow)});
    pipeline.cache = cache;
    const auto broken = std::make_shared<BrokenSamples>();
    (void)testing::whole_epoch(*open(std::make_shared<WithoutFile>(), pipeline, false, broken), context(), 0);
    ASSERT_EQ(broken->count(), 1) << static_cast<int>(cache);
    EXPECT_CONTAINS(broken->first()[0].reason, "3.png: could not be read");
  }
}

// Chance after a stage that a cache holds the results of is that of the sample that is replaced, whoever replaces it.
TEST_P(EncodedSamplesTest, ASampleInABrokenOnesPlaceHasTheSameBitsWhateverCache) {
  const auto reader = std::make_shared<PngSamples>(kSamples, false, std::vector<std::int64_t>{3, 4, 11});
  std::vector<std::vector<float>> reference;
  for (const CacheKind cache : {CacheKind::ram, CacheKind::off, CacheKind::disk}) {
    PipelineOptions pipeline =
        with({std::make_shared<WholeTo>(ImageSize{15, 16}), std::make_shared<SomewhereIn>(kWindow)});
    pipeline.cache = cache;
    const auto source = open(reader, pipeline, false, std::make_shared<BrokenSamples>());
    std::vector<std::vector<float>> images;
    for (const HostBatch& batch : testing::whole_epoch(*source, context(), 1)) images.push_back(batch.images);
    if (reference.empty()) reference = images;
    EXPECT_EQ(images, reference) << static_cast<int>(cache);
  }
}

// Sample 1 is none of the 32 that a packed file's digest reads.
TEST_P(EncodedSamplesTest, APackedFileWithReplacedSamplesIsOfOnErrorSkipAlone) {
  const auto reader = std::make_shared<PngSamples>(100, false, std::vector<std::int64_t>{1});
  PipelineOptions pipeline = with({std::make_shared<WholeTo>(kWindow)});
  pipeline.cache = CacheKind::disk;
  (void)open(reader, pipeline, false, std::make_shared<BrokenSamples>());
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)open(reader, pipeline); }), "1.png: ");
}

// The second run finds the file; what it counts, names and reads in the place of broken samples is the first run's.
TEST_P(EncodedSamplesTest, EachRunOnAPackedFileCountsItsBrokenSamples) {
  for (const bool chance : {false, true}) {
    std::shared_ptr<const Augmentation> stage = std::make_shared<WholeTo>(kWindow);
    if (chance) stage = std::make_shared<SomewhereIn>(kWindow);
    PipelineOptions pipeline = with({stage});
    pipeline.cache = CacheKind::disk;
    std::vector<std::vector<float>> first;
    for (const bool is_first : {true, false}) {
      const auto reader = std::make_shared<PngSamples>(kSamples, false, std::vector<std::int64_t>{3, 4, kSamples - 1});
      const auto broken = std::make_shared<BrokenSamples>();
      const auto source = open(reader, pipeline, false, broken);
      EXPECT_EQ(reader->fetched, std::min<std::int64_t>(32, kSamples) + (is_first ? kSamples : 0));
      std::vector<std::vector<float>> images;
      for (const HostBatch& batch : testing::whole_epoch(*source, context(), 0)) images.push_back(batch.images);
      EXPECT_EQ(broken->count(), 3) << is_first;
      ASSERT_EQ(broken->first().size(), 3u);
      EXPECT_EQ(broken->first()[0].name, "3.png");
      EXPECT_CONTAINS(broken->first()[0].reason, "3.png: ");
      if (is_first) first = images;
      EXPECT_EQ(images, first);
    }
  }
}

// Images that a stage does not suit, and those that it would make too large, are broken samples, too.
TEST_P(EncodedSamplesTest, AnImageThatAStageDoesNotSuitIsNamedOrReplaced) {
  const auto reader = std::make_shared<PngSamples>(kSamples);
  PipelineOptions pipeline = with({center_crop({22, 20})});
  pipeline.cache = CacheKind::off;
  const auto epoch = [&](std::shared_ptr<BrokenSamples> broken) {
    return testing::whole_epoch(*open(reader, pipeline, false, std::move(broken)), context(), 0);
  };
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)epoch(nullptr); }),
                  ".png: center_crop: a window of 22x20 does not fit an image of 2");
  const auto broken = std::make_shared<BrokenSamples>();
  EXPECT_EQ(std::ssize(epoch(broken)[0].labels), epoch(broken)[0].size);
  EXPECT_EQ(broken->count(), (kSamples + 4) / 5 + (kSamples + 3) / 5) << "images of 20 and 21 rows";
  pipeline = with({resize({1 << 14, 0}), center_crop({9, 12})});
  pipeline.cache = CacheKind::off;
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)epoch(nullptr); }),
                  ".png: resize makes 16384x24576 of an image of 20x30, at most 2^28 pixels are supported");
}

// On the CPU a plan knows the files' bytes beforehand, and fetches none.
TEST_P(EncodedSamplesTest, MetaDevicesAllocateTheSameMemory) {
  if (!GetParam().is_cpu()) GTEST_SKIP() << "a device's share is compared by the tests of plans";
  const std::shared_ptr<const Augmentation> whole = std::make_shared<WholeTo>(kWindow),
                                            chance = std::make_shared<SomewhereIn>(kWindow);
  for (const CacheKind cache : {CacheKind::ram, CacheKind::off, CacheKind::disk}) {
    for (const bool masks : {false, true}) {
      for (const auto& stage : {whole, chance}) {
        PipelineOptions pipeline = with_workers(with({stage}), 1, 3);
        pipeline.cache = cache;
        const auto peak = [&](Device device) {
          Runtime runtime({.threads = 1});
          const auto reader = std::make_shared<PngSamples>(kSamples, masks);
          const Context at = Context::make(runtime, device);
          {
            ImageBatchSource source(
                runtime, chosen_samples(reader, {5, 1, 7, 30, 22, 9, 11, 4, 8, 50}),
                {.pipeline = pipeline, .device = device, .seed = 1, .packed_file = folder_.path() / "samples.cache"});
            for (Batch batch; source.next(at, batch);) continue;
          }
          EXPECT_EQ(reader->fetched > 0, !device.meta);
          return runtime.allocator(device).stats().peak_bytes;
        };
        EXPECT_EQ(peak(Device::meta_of(Device::cpu())), peak(Device::cpu()));
      }
    }
  }
}

// Decoded samples where the stages have no chance, else files: where what is kept fits, it is kept.
TEST(SettleEncodedCache, FollowsTheRoomThereIs) {
  sample_formats().add("pngs", [](ConfigMap&) {
    return SampleSplits{std::make_shared<PngSamples>(kSamples), std::make_shared<PngSamples>(20)};
  });
  const auto settled = [](const std::string& stage, std::uint64_t device_bytes, std::uint64_t host_bytes,
                          std::uint64_t disk_bytes = 0) {
    DataOptions options = read_data_config(
        ConfigDocument::parse("data:\n  format: pngs\n  pipeline: [cache: auto, " + stage + ", batch: {size: 8}]\n",
                              "t.yaml")
            .map()
            .node("data"));
    decide_cache(options, {.device_bytes = device_bytes, .host_bytes = host_bytes, .disk_bytes = disk_bytes});
    return options.pipeline.cache;
  };
  const std::string whole = "resize: {size: [10, 12]}", chance = "random_resized_crop: {size: 10}";
  const std::uint64_t decoded = (kSamples + 20) * (10u * 12 * 3 + 4);
  EXPECT_EQ(settled(whole, decoded, decoded), CacheKind::device);
  EXPECT_EQ(settled(whole, decoded - 1, decoded), CacheKind::ram);
  EXPECT_EQ(settled(whole, decoded, decoded - 1), CacheKind::off);
  const std::uint64_t files = PngSamples(kSamples).total_encoded_bytes() + kSamples * 4u + 20u * (10 * 10 * 3 + 4);
  EXPECT_EQ(settled(whole, decoded, decoded - 1, decoded), CacheKind::disk);
  EXPECT_EQ(settled(whole, decoded, decoded - 1, decoded - 1), CacheKind::off);
  EXPECT_EQ(settled(chance, files, files - 1, files), CacheKind::off) << "the files are there already";
  EXPECT_EQ(settled(chance, files, files), CacheKind::ram);
  EXPECT_EQ(settled(chance, files, files - 1), CacheKind::off);
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)settled("shuffle", 1, 1); }), "add `resize: {size: [H, W]}`");
}

/// Files of 16 bits, values as stored: sample i is grey, of 4 x (5 + i mod 3) pixels from 1000·i on.
class StoredValues : public PngSamples {
 public:
  using PngSamples::PngSamples;
  DatasetFacts facts() const override {
    DatasetFacts facts = PngSamples::facts();
    facts.image_shape = {0, 0, 1};
    facts.image_dtype = DType::float32;
    return facts;
  }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    PngSamples::fetch(index, fields);
    const std::int64_t width = 5 + index % 3;
    std::string file = fmt::format("P5 {} 4 65535\n", width);
    for (std::int64_t p = 0; p < 4 * width; ++p) {
      const std::int64_t value = 1000 * index + p;
      file += {static_cast<char>(value >> 8), static_cast<char>(value & 255)};
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(file.data());
    fields[0].assign(bytes, bytes + file.size());
  }
};

TEST_P(EncodedSamplesTest, ValuesAsStoredReachTheBatch) {
  const std::int64_t samples = 6;
  for (const CacheKind cache : {CacheKind::off, CacheKind::ram, CacheKind::disk}) {
    PipelineOptions pipeline = with({std::make_shared<WholeTo>(ImageSize{4, 5})});
    pipeline.cache = cache;
    pipeline.normalize = {.scale = 2};
    const auto batches = testing::whole_epoch(*open(std::make_shared<StoredValues>(samples), pipeline), context(), 0);
    std::int64_t index = 0;
    for (const HostBatch& batch : batches) {
      EXPECT_EQ(batch.shape, (Shape{batch.size, 4, 5, 1}));
      for (std::size_t b = 0; b < batch.labels.size(); ++b, ++index) {
        double sum = 0;
        for (std::size_t v = 0; v < 20; ++v) {
          const float value = batch.images[b * 20 + v];
          sum += value;
          if (index % 3 == 0) {
            ASSERT_EQ(value, 2.0f * static_cast<float>(1000 * index + static_cast<std::int64_t>(v)));
          }
        }
        // Resampled from another width, the mean stays: columns are symmetric about the middle.
        const double mean = 1000.0 * static_cast<double>(index) + (4.0 * static_cast<double>(5 + index % 3) - 1) / 2;
        EXPECT_NEAR(sum / 20, 2 * mean, 0.05) << index;
      }
    }
    EXPECT_EQ(index, samples);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EncodedSamplesTest, ::testing::Values(Device::cpu(), Device::cuda(0)),
                         [](const auto& info) { return std::string(info.param.is_cpu() ? "cpu" : "cuda"); });

}  // namespace
}  // namespace bantam::encoded_samples_test
