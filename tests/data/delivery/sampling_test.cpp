// `data.sampling`: epochs of other sizes and classes, the same bits wherever samples lie, on every device; keys that do
// not go together; and stages that draw anew where a sample comes again.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "bantam/base/error.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/engine/train/device_batches.h"
#include "tests/data/delivery/loader_fixture.h"

namespace bantam::sampling_test {
namespace {

using testing::HostBatch;
using testing::message_of;
using testing::rest_of_epoch;
using testing::whole_epoch;

std::vector<std::int32_t> labels_in(const std::vector<HostBatch>& batches) {
  std::vector<std::int32_t> labels;
  for (const HostBatch& batch : batches) labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
  return labels;
}

class SamplingTest : public LoaderTest {
 protected:
  static PipelineOptions sampled(EpochSampling sampling) {
    PipelineOptions options = full();
    options.sampling = sampling;
    return options;
  }
};

TEST_P(SamplingTest, TheSameBitsForAnyCacheWorkersAndRestart) {
  using Draw = EpochSampling::Draw;
  for (const EpochSampling sampling :
       {EpochSampling{.draw = Draw::balanced}, EpochSampling{.repeat = 2},
        EpochSampling{.draw = Draw::balanced, .samples = 75}, EpochSampling{.samples = 20}}) {
    const std::int64_t count = sampling.epoch_samples(kSamples), batches = (count + kBatch - 1) / kBatch;
    std::vector<HostBatch> reference;
    for (const CacheKind cache : {CacheKind::ram, CacheKind::off, CacheKind::device}) {
      for (const std::int64_t workers : {0, 4}) {
        for (const bool staged : {false, true}) {
          PipelineOptions pipeline = with_workers(sampled(sampling), workers, workers + 1);
          pipeline.cache = cache;
          const auto made = source(pipeline, 3, staged);
          EXPECT_EQ(made->batches_per_epoch(), batches);
          const std::vector<HostBatch> epoch = whole_epoch(*made, context(), 2);
          if (reference.empty()) reference = epoch;
          EXPECT_EQ(std::ssize(labels_in(epoch)), count);
          EXPECT_EQ(epoch, reference) << workers << ", staged " << staged;
          made->start(2, 1);
          EXPECT_EQ(rest_of_epoch(*made, context()), std::vector<HostBatch>(reference.begin() + 1, reference.end()));
          EXPECT_EQ(made->sample_numbers(2, batches - 1).size(), reference.back().labels.size());
        }
      }
    }
  }
}

TEST_P(SamplingTest, TheDeviceMakesTheSameBatches) {
  const EpochSampling sampling{.draw = EpochSampling::Draw::balanced, .repeat = 2};
  PipelineOptions pipeline = sampled(sampling);
  pipeline.drop_last = true;
  const Context at = context();
  const std::vector<HostBatch> expected = whole_epoch(*source(pipeline, 3, true), at, 1);
  pipeline.cache = CacheKind::device;
  const auto made = source(pipeline, 3, true);
  DeviceBatches* batches = made->device_batches(at);
  ASSERT_NE(batches, nullptr);
  made->start(1);
  ASSERT_EQ(batches->left(), std::ssize(expected));
  for (const HostBatch& batch : expected) {
    HostBatch seen = testing::copy_batch(batches->make(at, 0, 1), at.stream);
    seen.index = batch.index;
    EXPECT_EQ(seen, batch);
    batches->advance(1);
  }
}

TEST_P(SamplingTest, ClassesComeEquallyOften) {
  const auto set = std::make_shared<Dataset>(*runtime_, DatasetFacts{60, kShape, {"a", "b", "c"}});
  std::ranges::fill(set->images_out(), std::uint8_t{7});
  for (std::size_t i = 0; i < 60; ++i) set->labels_out()[i] = i < 3 ? 2 : i < 20 ? 1 : 0;
  PipelineOptions pipeline = plain();
  pipeline.sampling.draw = EpochSampling::Draw::balanced;
  ImageBatchSource source(*runtime_, set, {.pipeline = pipeline, .device = GetParam(), .seed = 1});
  const std::vector<std::int32_t> labels = labels_in(whole_epoch(source, context(), 0));
  for (const std::int32_t label : {0, 1, 2}) EXPECT_NEAR(static_cast<double>(std::ranges::count(labels, label)), 20, 1);
  PipelineOptions evaluated = evaluation_pipeline(pipeline);
  EXPECT_EQ(evaluated.sampling.epoch_samples(60), 60);
  EXPECT_EQ(evaluated.sampling.draw, EpochSampling::Draw::each);
}

/// Adds a random number to the first pixel.
class Jitter : public Augmentation {
 public:
  std::string_view name() const override { return "jitter"; }
  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    sample.buffers[0][0] = static_cast<std::byte>(random.below(256));
  }
};

TEST_P(SamplingTest, StagesDrawAnewWhereASampleComesAgain) {
  PipelineOptions pipeline = plain();
  pipeline.augmentations = {std::make_shared<Jitter>()};
  const auto once = whole_epoch(*source(pipeline), context(), 0);
  pipeline.sampling.repeat = 4;
  pipeline.batch_size = kSamples;
  const auto often = whole_epoch(*source(pipeline), context(), 0);
  ASSERT_EQ(often.size(), 4u);
  const std::size_t values = static_cast<std::size_t>(kShape.elements());
  int changed = 0;
  for (std::size_t i = 0; i < kSamples; ++i) {
    EXPECT_EQ(often[0].images[i * values], once[i / kBatch].images[i % kBatch * values]) << i;
    changed += often[1].images[i * values] != often[0].images[i * values];
    EXPECT_EQ(often[1].images[i * values + 1], often[0].images[i * values + 1]) << i;
  }
  EXPECT_GT(changed, 45);  // 53 · 255 / 256 are expected
}

/// What stages were told of the samples that they saw.
struct ToldEpochs {
  std::mutex mutex;
  std::set<std::int64_t> applied, chosen;
};

/// Host form, or region form of whole images: keeps the epochs.
class Listener : public Augmentation {
 public:
  Listener(std::shared_ptr<ToldEpochs> told, bool region) : told_(std::move(told)), region_(region) {}
  std::string_view name() const override { return region_ ? "region_listener" : "listener"; }
  bool has_region_form() const override { return region_; }
  void apply(AugmentedSample& sample, PhiloxSequence&) const override {
    const std::lock_guard lock(told_->mutex);
    told_->applied.insert(sample.epoch);
  }
  Sampling region_at(const SampleVisit& visit, ImageSize size, PhiloxSequence&) const override {
    const std::lock_guard lock(told_->mutex);
    told_->chosen.insert(visit.epoch);
    return {.window = size, .size = size};
  }

 private:
  std::shared_ptr<ToldEpochs> told_;
  bool region_;
};

TEST_P(SamplingTest, StagesAreToldTheEpochWhereASampleComesAgain) {
  using Epochs = std::set<std::int64_t>;
  for (const bool region : {false, true}) {
    const auto told = std::make_shared<ToldEpochs>();
    PipelineOptions pipeline = with_workers(plain(), 2, 3);
    if (region) pipeline.augmentations.push_back(std::make_shared<Listener>(told, true));
    pipeline.augmentations.push_back(std::make_shared<Listener>(told, false));
    pipeline.sampling.repeat = 3;
    const auto made = source(pipeline);
    for (const std::int64_t epoch : {5, 6}) EXPECT_EQ(std::ssize(labels_in(whole_epoch(*made, context(), epoch))), 159);
    EXPECT_EQ(told->applied, (Epochs{5, 6}));
    EXPECT_EQ(told->chosen, region ? Epochs({5, 6}) : Epochs());
  }
}

DataOptions read(const std::string& keys) {
  return read_data_config(ConfigDocument::parse("data: {format: generated, train_samples: 50, test_samples: 10, " +
                                                    keys + ", pipeline: [shuffle, batch: {size: 8}]}",
                                                "t.yaml")
                              .map()
                              .node("data"));
}

TEST(SamplingKeys, SayAnEpochsSamples) {
  EXPECT_EQ(epoch_samples(read("limit: 40")), 40);
  EXPECT_EQ(epoch_samples(read("sampling: {repeat: 3}")), 150);
  EXPECT_EQ(epoch_samples(read("sampling: {balanced: true, samples: 7}")), 7);
  EXPECT_EQ(read("sampling: {balanced: true}").pipeline.sampling.draw, EpochSampling::Draw::balanced);
  EXPECT_EQ(train_facts(read("sampling: {repeat: 3}")).size, 50);
}

TEST(SamplingKeys, ThatDoNotGoTogetherAreErrors) {
  const auto error = [](const std::string& keys) { return message_of<ConfigError>([&] { (void)read(keys); }); };
  EXPECT_CONTAINS(error("sampling: {balanced: true, weights: true}"), "by class or by weight, not both");
  EXPECT_CONTAINS(error("sampling: {repeat: 2, samples: 9}"), "not both");
  EXPECT_CONTAINS(error("sampling: {weights: true}"), "the data have no weights");
  EXPECT_CONTAINS(error("labels: pixels, sampling: {balanced: true}"), "needs one class number a sample");
  EXPECT_CONTAINS(error("sampling: {repeat: 0}"), "t.yaml:1:");
}

INSTANTIATE_TEST_SUITE_P(Devices, SamplingTest, ::testing::Values(Device::cpu(), Device::cuda(0)),
                         [](const auto& info) { return std::string(info.param.is_cpu() ? "cpu" : "cuda"); });

}  // namespace
}  // namespace bantam::sampling_test
