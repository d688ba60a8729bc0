// A program's own reader and augmentations through the loader: targets of any type, the same bits whatever caches and
// makes the batches, planned memory that is the measured one, and errors that come out of `next`.
#include "bantam/data/formats/sample_reader.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/delivery/data_config.h"
#include "tests/data/delivery/loader_fixture.h"

namespace bantam::sample_reader_test {
namespace {

using testing::message_of;
using testing::ramp_pixel;

/// Images with a position (two floats) and a mask (one byte a pixel); counts what is read, and fails where it is told.
class Positions : public SampleReader {
 public:
  explicit Positions(std::int64_t size, std::int64_t broken = -1) : size_(size), broken_(broken) {}

  DatasetFacts facts() const override {
    return {.size = size_,
            .image_shape = kShape,
            .targets = {{"position", {2}, DType::float32}, {"mask", {4, 5}, DType::uint8}}};
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    if (index == broken_) throw DataError(fmt::format("positions.bin: sample {} cannot be decoded", index));
    for (std::size_t p = 0; p < fields[0].size(); ++p)
      fields[0][p] = std::byte{ramp_pixel(index, static_cast<std::int64_t>(p))};
    const float position[2] = {static_cast<float>(index) / 3, -static_cast<float>(index)};
    ASSERT_EQ(fields[1].size(), sizeof position);
    std::memcpy(fields[1].data(), position, sizeof position);
    for (std::size_t p = 0; p < fields[2].size(); ++p)
      fields[2][p] = std::byte{static_cast<std::uint8_t>(static_cast<std::size_t>(index) * 3 + p)};
    const std::lock_guard lock(guard_);
    ++reads_;
  }
  std::int64_t reads() const {
    const std::lock_guard lock(guard_);
    return reads_;
  }

 private:
  std::int64_t size_, broken_;
  mutable std::mutex guard_;
  mutable std::int64_t reads_ = 0;
};

/// Float32 samples of any shape, sample i's value p is i - p / 8, and class numbers.
class Floats : public SampleReader {
 public:
  Floats(std::int64_t size, const Shape& shape) : size_(size), shape_(shape) {}
  DatasetFacts facts() const override {
    return {.size = size_, .image_shape = shape_, .class_names = {"a", "b", "c"}, .image_dtype = DType::float32};
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    std::vector<float> values(fields[0].size() / sizeof(float));
    for (std::size_t p = 0; p < values.size(); ++p) values[p] = value(index, static_cast<std::int64_t>(p));
    std::memcpy(fields[0].data(), values.data(), fields[0].size());
    const auto label = static_cast<std::int32_t>(index % 3);
    std::memcpy(fields[1].data(), &label, sizeof label);
  }
  static float value(std::int64_t index, std::int64_t position) {
    return static_cast<float>(index) - static_cast<float>(position) / 8;
  }

 private:
  std::int64_t size_;
  Shape shape_;
};

/// Adds a random number to each pixel, and its sample's first random number to the mask's first byte.
class Noise : public Augmentation {
 public:
  explicit Noise(std::int64_t most) : most_(static_cast<std::uint64_t>(most)) {}
  std::string_view name() const override { return "noise"; }
  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    for (std::byte& pixel : sample.buffers[0])
      pixel = static_cast<std::byte>(std::to_integer<std::uint64_t>(pixel) + random.below(most_));
    EXPECT_EQ(sample.fields.back().name, sample.fields.size() == 3 ? "mask" : "labels");
    if (sample.fields.size() == 3) sample.buffers[2][0] = sample.buffers[0][0];
  }

 private:
  std::uint64_t most_;
};

/// All tensors of a batch as bytes, by name.
struct RawBatch {
  std::int64_t index = 0;
  std::vector<std::pair<std::string, std::vector<std::uint8_t>>> tensors;
  bool operator==(const RawBatch&) const = default;
};

std::vector<RawBatch> rest(BatchSource& source, const Context& context) {
  std::vector<RawBatch> batches;
  for (Batch batch; source.next(context, batch);) {
    batches.push_back({batch.index, {}});
    for (const TensorMap::Entry& entry : batch.tensors)
      batches.back().tensors.emplace_back(
          entry.name, to_host<std::uint8_t>(
                          entry.tensor.reinterpret(0, {static_cast<std::int64_t>(entry.tensor.bytes())}, DType::uint8),
                          context.stream));
  }
  return batches;
}

class SampleReaderTest : public LoaderTest {
 protected:
  std::unique_ptr<ImageBatchSource> open(std::shared_ptr<const SampleReader> reader, PipelineOptions pipeline,
                                         bool staged = false) {
    return std::make_unique<ImageBatchSource>(
        *runtime_, std::move(reader),
        LoaderOptions{.pipeline = std::move(pipeline), .device = GetParam(), .seed = 1, .staged_on_cpu = staged});
  }
};

TEST_P(SampleReaderTest, TargetsComeAsTheyAreStored) {
  for (const CacheKind cache : {CacheKind::ram, CacheKind::off}) {
    PipelineOptions pipeline = plain();
    pipeline.cache = cache;
    const auto source = open(std::make_shared<Positions>(kSamples), pipeline);
    const auto tensors = source->tensors();
    ASSERT_EQ(tensors.size(), 3u);
    EXPECT_EQ(tensors[1].name, "position");
    EXPECT_EQ(tensors[1].shape, Shape{2});
    EXPECT_EQ(tensors[2].dtype, DType::uint8);
    EXPECT_EQ(source->classes(), 0);
    std::int64_t sample = 0;
    for (Batch batch; source->next(context(), batch);) {
      ASSERT_EQ(batch.tensors.size(), 3u);
      EXPECT_EQ(batch.at("position").shape(), (Shape{batch.size, 2}));
      EXPECT_EQ(batch.at("mask").shape(), (Shape{batch.size, 4, 5}));
      const auto position = to_host<float>(batch.at("position"), context().stream);
      const auto mask = to_host<std::uint8_t>(batch.at("mask"), context().stream);
      const auto images = to_host_floats(batch.at(kImages), context().stream);
      for (std::size_t i = 0; i < static_cast<std::size_t>(batch.size); ++i, ++sample) {
        EXPECT_EQ(position[2 * i], static_cast<float>(sample) / 3);
        EXPECT_EQ(position[2 * i + 1], -static_cast<float>(sample));
        EXPECT_EQ(mask[20 * i + 7], static_cast<std::uint8_t>(sample * 3 + 7));
        EXPECT_EQ(images[60 * i + 11], static_cast<float>(ramp_pixel(sample, 11)));
      }
    }
    EXPECT_EQ(sample, kSamples);
  }
}

// Vectors and images of float32, wherever they are cached and whoever makes the batches: in place of pixels the same
// numbers, normalised, and with `cache: device` made by the device from its own copy.
TEST_P(SampleReaderTest, FloatsComeAsNumbers) {
  for (const Shape& shape : {Shape{7}, Shape{2, 3, 2}, Shape{1, 2, 11}}) {
    for (const CacheKind cache : {CacheKind::ram, CacheKind::off, CacheKind::device}) {
      for (const bool staged : {false, true}) {
        PipelineOptions pipeline = plain();
        pipeline.cache = cache;
        pipeline.normalize = {.scale = 2, .mean = {1.0}, .std = {4.0}};
        const auto source = open(std::make_shared<Floats>(kSamples, shape), pipeline, staged);
        EXPECT_EQ(source->tensors()[0].shape, shape);
        const bool on_device = cache == CacheKind::device && (staged || GetParam().is_cuda());
        EXPECT_EQ(source->device_batches(context()) != nullptr, on_device);
        std::int64_t sample = 0;
        for (Batch batch; source->next(context(), batch);) {
          ASSERT_EQ(batch.at(kImages).shape(), shape.prepend(batch.size));
          const auto values = to_host_floats(batch.at(kImages), context().stream);
          const auto labels = to_host<std::int32_t>(batch.at(kLabels), context().stream);
          for (std::int64_t i = 0; i < batch.size; ++i, ++sample) {
            EXPECT_EQ(labels[static_cast<std::size_t>(i)], sample % 3);
            for (std::int64_t p = 0; p < shape.elements(); ++p)
              ASSERT_EQ(values[static_cast<std::size_t>(i * shape.elements() + p)],
                        Floats::value(sample, p) * 0.5f - 0.25f);
          }
        }
        EXPECT_EQ(sample, kSamples);
      }
    }
  }
}

TEST_P(SampleReaderTest, RefusesSamplesOfOtherShapesAndTypes) {
  const auto message = [&](DatasetFacts facts) { return message_of<Error>([&] { check_facts(facts); }); };
  EXPECT_CONTAINS(message({.size = 1, .image_shape = {2, 3}}), "or vectors of features, got (2, 3)");
  EXPECT_CONTAINS(message({.size = 1, .image_shape = {2}, .image_dtype = DType::int32}),
                  "must be uint8 or float32, not int32");
}

TEST_P(SampleReaderTest, ACacheReadsOnceAndWithoutOneEachEpochReads) {
  for (const CacheKind cache : {CacheKind::ram, CacheKind::off}) {
    PipelineOptions pipeline = plain();
    pipeline.cache = cache;
    const auto reader = std::make_shared<Positions>(kSamples);
    const auto source = open(reader, pipeline);
    EXPECT_EQ(reader->reads(), cache == CacheKind::off ? 0 : kSamples);
    for (int epoch = 0; epoch < 2; ++epoch) {
      source->start(epoch);
      (void)rest(*source, context());
    }
    EXPECT_EQ(reader->reads(), cache == CacheKind::off ? 2 * kSamples : kSamples);
  }
}

// Whatever caches, whoever makes the batches, and wherever an epoch is begun: the same bits, also of what a program's
// own augmentations change.
TEST_P(SampleReaderTest, TheSameBitsForAnyCacheWorkersAndRestart) {
  for (const bool noisy : {false, true}) {
    PipelineOptions pipeline = full();
    if (noisy) pipeline.augmentations.insert(pipeline.augmentations.begin(), std::make_shared<Noise>(50));
    std::vector<RawBatch> reference;
    for (const CacheKind cache : {CacheKind::ram, CacheKind::automatic, CacheKind::off}) {
      for (const std::int64_t workers : {0, 1, 4}) {
        for (const bool staged : {false, true}) {
          pipeline.cache = cache;
          pipeline.prefetch = {.depth = workers + 1, .workers = workers};
          const auto source = open(std::make_shared<Positions>(kSamples), pipeline, staged);
          source->start(2);
          const std::vector<RawBatch> batches = rest(*source, context());
          if (reference.empty()) reference = batches;
          ASSERT_EQ(batches.size(), 7u);
          EXPECT_EQ(batches, reference) << "workers " << workers << ", staged " << staged;
          source->start(2, 5);
          EXPECT_EQ(rest(*source, context()), std::vector<RawBatch>(reference.begin() + 5, reference.end()));
        }
      }
    }
  }
}

// What an augmentation of host form is asked to change depends on the sample and the epoch, not on its place there.
TEST_P(SampleReaderTest, HostAugmentationsBelongToSamplesAndEpochs) {
  PipelineOptions pipeline = plain();
  pipeline.augmentations = {std::make_shared<Noise>(200)};
  const auto images = [&](const PipelineOptions& options, std::int64_t epoch) {
    const auto source = open(std::make_shared<Positions>(kSamples), options);
    source->start(epoch);
    std::vector<std::vector<float>> images;
    for (Batch batch; source->next(context(), batch);) {
      const auto values = to_host_floats(batch.at(kImages), context().stream);
      for (std::size_t i = 0; i < values.size(); i += 60)
        images.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(i),
                            values.begin() + static_cast<std::ptrdiff_t>(i + 60));
    }
    std::ranges::sort(images);
    return images;
  };
  const auto first = images(pipeline, 0);
  EXPECT_NE(images(pipeline, 1), first);
  EXPECT_NE(images(plain(), 0), first);
  EXPECT_EQ(images(evaluation_pipeline(pipeline), 0), images(plain(), 0)) << "validation samples are not augmented";
  PipelineOptions shuffled = pipeline;
  shuffled.shuffle.emplace();
  EXPECT_EQ(images(shuffled, 0), first);
}

TEST_P(SampleReaderTest, WhatADeviceCannotMakeIsRefusedThere) {
  PipelineOptions pipeline = plain();
  pipeline.cache = CacheKind::device;
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)open(std::make_shared<Positions>(kSamples), pipeline, true); }),
                  "cache: device needs data with one target, an int32 a sample");
  pipeline.augmentations = {std::make_shared<Noise>(2)};
  const auto labelled = reader_of(dataset());
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)open(labelled, pipeline, true); }),
                  "cache: device does not go with noise, which changes samples on the host");
  // With another cache the host has a part in each batch, so steps are not captured.
  pipeline.cache = CacheKind::ram;
  EXPECT_EQ(open(labelled, pipeline, true)->device_batches(context()), nullptr);
}

TEST_P(SampleReaderTest, AHostAugmentationAfterACropIsRefused) {
  PipelineOptions pipeline = plain();
  pipeline.augmentations = {random_crop({.height = 4, .width = 5, .padding = 1}), std::make_shared<Noise>(2)};
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)open(std::make_shared<Positions>(9), pipeline); }),
                  "noise changes stored pixels, so it must come before random_crop");
}

TEST_P(SampleReaderTest, AReadThatFailsComesOutOfNextAndTheRestGoesOn) {
  const auto broken = std::make_shared<Positions>(kSamples, 20);
  EXPECT_CONTAINS(message_of<DataError>([&] { (void)open(broken, plain()); }), "positions.bin: sample 20");
  for (const std::int64_t workers : {0, 1, 4}) {
    PipelineOptions pipeline = with_workers(plain(), workers, 3);
    pipeline.cache = CacheKind::off;
    const auto source = open(broken, pipeline);
    Batch batch;
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(source->next(context(), batch));
    for (int again = 0; again < 2; ++again)
      EXPECT_CONTAINS(message_of<DataError>([&] { (void)source->next(context(), batch); }), "positions.bin: sample 20");
    source->start(0, 3);
    EXPECT_EQ(rest(*source, context()).size(), 4u);
  }
}

// On the CPU all of a source's memory is the allocator's: a meta device tells it beforehand, and reads nothing.
TEST_P(SampleReaderTest, MetaDevicesTakeTheSameMemory) {
  if (!GetParam().is_cpu()) GTEST_SKIP() << "a device's share is compared by the tests of plans";
  for (const CacheKind cache : {CacheKind::ram, CacheKind::off}) {
    for (const bool noisy : {false, true}) {
      PipelineOptions pipeline = with_workers(full(), 1, 3);
      pipeline.cache = cache;
      if (noisy) pipeline.augmentations.insert(pipeline.augmentations.begin(), std::make_shared<Noise>(50));
      const auto peak = [&](Device device, std::int64_t reads) {
        Runtime runtime({.threads = 1});
        const auto reader = std::make_shared<Positions>(kSamples);
        const Context at = Context::make(runtime, device);
        {
          ImageBatchSource source(runtime, reader, {.pipeline = pipeline, .device = device, .seed = 1});
          for (Batch batch; source.next(at, batch);) continue;
        }
        EXPECT_EQ(reader->reads(), reads);
        return runtime.allocator(device).stats().peak_bytes;
      };
      const std::uint64_t planned = peak(Device::meta_of(Device::cpu()), 0);
      EXPECT_EQ(planned, peak(Device::cpu(), kSamples)) << "noisy " << noisy;
      // Four batches at most: finished images, stored ones and targets.
      if (cache == CacheKind::off) {
        EXPECT_LT(planned, 4 * kBatch * (60u * 4 + 60 + 28) + 16 * BfcAllocator::kAllocationUnit);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SampleReaderTest, ::testing::Values(Device::cpu(), Device::cuda(0)),
                         [](const auto& info) { return std::string(info.param.is_cpu() ? "cpu" : "cuda"); });

TEST(SampleFormats, AProgramsOwnAreNamedInAConfiguration) {
  sample_formats().add("positions", [](ConfigMap& data) {
    return SampleSplits{std::make_shared<Positions>(data.integer("samples", {.min = 1})),
                        std::make_shared<Positions>(9)};
  });
  augmentations().add("noise", [](ConfigMap& map) { return std::make_shared<Noise>(map.integer("most", {.min = 1})); });
  const auto read = [](const std::string& format, const std::string& stages) {
    return read_data_config(ConfigDocument::parse("data:\n  format: " + format + "\n  samples: 40\n  limit: 30\n" +
                                                      "  pipeline: [" + stages + "]\n",
                                                  "t.yaml")
                                .map()
                                .node("data"));
  };
  DataOptions options = read("positions", "cache: auto, noise: {most: 4}, batch: {size: 8}");
  EXPECT_EQ(train_facts(options).size, 30);
  EXPECT_EQ(test_facts(options).size, 9);
  EXPECT_EQ(train_facts(options).targets[1].name, "mask");
  ASSERT_EQ(options.pipeline.augmentations.size(), 1u);
  EXPECT_EQ(stage_forms(options.pipeline.augmentations, train_facts(options)).worker.at(0)->name(), "noise");
  decide_cache(options, {.device_bytes = 1u << 30, .host_bytes = 1u << 30});
  EXPECT_EQ(options.pipeline.cache, CacheKind::ram) << "a device cannot gather these";
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)read("positons", "batch: {size: 8}"); }), "positions");
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)read("positions", "nois: {most: 4}, batch: {size: 8}"); }),
                  "did you mean 'noise'?");
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)read("positions", "noise: {most: 4, b: 1}, batch: {size: 8}"); }),
                  "'b'");
  // A crop of padding and another size is the kernel's alone, whose windows are of the images.
  const std::string crop = "random_crop: {size: [3, 5], padding: 1}, ";
  EXPECT_CONTAINS(
      message_of<ConfigError>([&] { (void)read("positions", crop + "noise: {most: 4}, batch: {size: 8}"); }),
      "must come before");
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)read("positions", crop + "batch: {size: 8}"); }),
                  "random_crop moves pixels of the images, but those of 'mask' (4, 5) would stay");
  // With the images' own size it is one without, which a worker applies where another stage follows.
  for (const char* stages : {"random_crop: {size: [4, 5], padding: 1}, random_flip, noise: {most: 4}",
                             "random_flip, noise: {most: 4}, "
                             "random_crop: {padding: 1}, shuffle"})
    EXPECT_EQ(read("positions", std::string(stages) + ", batch: {size: 8}").pipeline.augmentations.size(), 3u);
  options = read("positions", "noise: {most: 4}, random_flip, random_crop: {padding: 1}, batch: {size: 8}");
  EXPECT_EQ(stage_forms(options.pipeline.augmentations, train_facts(options)).worker.size(), 3u);
  EXPECT_THROW(augmentations().add("noise", {}), ConfigError);
  EXPECT_CONTAINS(message_of<ConfigError>([] { (void)sample_formats().at("cifar11"); }), "did you mean 'cifar10'?");
}

TEST(SettleCache, FollowsTheRoomThereIs) {
  const auto settled = [](const std::string& cache, const CacheRoom& room, const std::string& more = "") {
    DataOptions options =
        read_data_config(ConfigDocument::parse("data:\n  format: generated\n  train_samples: 900\n  test_samples: 100\n"
                                               "  pipeline: [cache: " +
                                                   cache + ", batch: {size: 8}]\n" + more,
                                               "t.yaml")
                             .map()
                             .node("data"));
    decide_cache(options, room);
    return options.pipeline.cache;
  };
  constexpr std::uint64_t kBytes = 1000 * (3072 + 4);
  EXPECT_EQ(settled("auto", {.device_bytes = kBytes, .host_bytes = kBytes}), CacheKind::device);
  EXPECT_EQ(settled("auto", {.device_bytes = kBytes - 1, .host_bytes = kBytes}), CacheKind::ram);
  EXPECT_EQ(settled("auto", {.device_bytes = kBytes, .host_bytes = kBytes},
                    "  evaluation: {pipeline: [grayscale: {p: 1}]}\n"),
            CacheKind::ram)
      << "validation samples pass a stage of workers";
  EXPECT_EQ(settled("auto", {.device_bytes = kBytes, .host_bytes = kBytes - 1}), CacheKind::off);
  EXPECT_EQ(settled("ram", {.device_bytes = kBytes, .host_bytes = 0}), CacheKind::ram) << "what was said stands";
  EXPECT_EQ(settled("off", {.device_bytes = kBytes, .host_bytes = kBytes}), CacheKind::off);
}

}  // namespace
}  // namespace bantam::sample_reader_test
