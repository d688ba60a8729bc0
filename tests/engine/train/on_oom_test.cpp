// `on_oom: accumulate`: an update that runs out of memory is repeated in smaller micro-batches, and nobody can tell
// from the result.
#include "bantam/engine/train/trainer.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::on_oom_test {
namespace {

using testing::EngineTest;
using testing::MemorySource;

class OnOomTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(OnOomTest);

constexpr float kRate = 1.0f;  // weights move by the gradient

/// Plain SGD on the small network, dropout and all.
struct SmallRun {
  SmallRun(Runtime& runtime, Device device, bool batch_norm_layers = false, int replicas = 1)
      : model(runtime, device, testing::small_network(batch_norm_layers), {.seed = 5}),
        optimizer(model, {.rule = sgd({.learning_rate = kRate})}),
        step(model, optimizer, {}, {.replicas = replicas}) {}
  std::vector<float> weights() {
    return to_host<float>(model.parameters().master(), model.runtime().stream(model.device()));
  }
  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

/// Counts samples and remembers how small micro-batches became.
struct Recorder : Callback {
  void on_progress(const ProgressEvent& event) override {
    for (const Metrics& m : event.metrics) samples += m.samples, loss += m.loss * static_cast<double>(m.samples);
  }
  void on_smaller_micro_batch(const SmallerMicroBatchEvent& event) override { smaller.push_back(event); }
  std::int64_t samples = 0;
  double loss = 0;
  std::vector<SmallerMicroBatchEvent> smaller;
};

/// On a GPU a convolution's workspace has megabytes whatever the batch, so samples must be many for halves to help.
std::int64_t scale(Device device) { return device.is_cuda() ? 256 : 1; }
std::uint64_t scaled(Device device, std::uint64_t bytes) { return bytes * static_cast<std::uint64_t>(scale(device)); }

/// All taken at once, so that nothing but the bytes left decides what fits.
std::uint64_t pool_of(Device device) { return device.is_cuda() ? 512u << 20 : 8u << 20; }

/// Allows so many bytes of the pool to others, from a chosen batch on.
class CrowdingSource : public MemorySource {
 public:
  using MemorySource::MemorySource;
  bool next(const Context& context, Batch& batch) override {
    if (given_++ == at_call)
      ballast_ =
          context.at("ballast").allocate({static_cast<std::int64_t>(pool_of(context.device) - left)}, DType::uint8);
    return MemorySource::next(context, batch);
  }
  std::int64_t at_call = -1;
  std::uint64_t left = 0;

 private:
  std::int64_t given_ = 0;
  Tensor ballast_;
};

/// Trains two epochs of batches 16, 16, 6 (times the scale) in a runtime of its own; from batch `at_call` on `left`
/// bytes are left.
struct Outcome {
  std::vector<float> weights;
  Recorder heard;
  Metrics validation;
  std::uint64_t peak = 0, in_use_before = 0, in_use_after = 0;
  bool fits = true;
  std::string error;
};
Outcome train(Device device, std::uint64_t left, std::int64_t at_call, TrainerOptions options, int replicas = 1) {
  Runtime runtime({.threads = 2, .budgets = {{to_string(device), pool_of(device)}}, .growth = false});
  BfcAllocator& memory = runtime.allocator(device);
  SmallRun run(runtime, device, false, replicas);
  Outcome outcome;
  synchronize(runtime.stream(device));
  outcome.in_use_before = memory.stats().in_use_bytes;
  {
    const std::int64_t n = scale(device);
    CrowdingSource source({8, 8, 3}, 5, 38 * n, 16 * n), validation({8, 8, 3}, 5, 21 * n, 16 * n);
    source.left = left;
    source.at_call = at_call;
    Trainer trainer(run.step, source, &validation, options);
    trainer.add(outcome.heard);
    try {
      outcome.validation = trainer.run().validation;
    } catch (const OutOfMemory& error) {
      outcome.fits = false;
      outcome.error = error.what();
    }
  }
  outcome.weights = run.weights();
  outcome.in_use_after = memory.stats().in_use_bytes;
  outcome.peak = memory.stats().peak_bytes;
  EXPECT_EQ(memory.check_invariants(), "");
  return outcome;
}

std::uint64_t persistent_bytes(Device device) {
  return train(device, pool_of(device), -1, {.epochs = 0}).in_use_before;
}

TEST_P(OnOomTest, GradientsOfTheFirstUpdateAreTheSame) {
  const TrainerOptions one_update{.epochs = 1, .accumulate = 3, .evaluate = false};
  const Outcome whole = train(device(), pool_of(device()), -1, one_update);
  TrainerOptions halving = one_update;
  halving.on_oom = OnOutOfMemory::accumulate;
  const std::uint64_t persistent = persistent_bytes(device());
  std::size_t fewest = 100, halvings = 0, refused = 0;
  const std::uint64_t kib = scaled(device(), 1u << 10);
  for (std::uint64_t left = persistent + 4 * kib; left < whole.peak + 64 * kib; left += 8 * kib) {
    const Outcome limited = train(device(), left, 0, halving);
    EXPECT_EQ(limited.in_use_after, limited.in_use_before) << "a leak where " << left << " B are left";
    if (!limited.fits) {
      ++refused;
      continue;
    }
    EXPECT_LT(testing::relative_difference(limited.weights, whole.weights), device().is_cuda() ? 1e-5 : 1e-6) << left;
    EXPECT_EQ(limited.heard.samples, 38 * scale(device())) << left;
    EXPECT_NEAR(limited.heard.loss, whole.heard.loss, 1e-3 * static_cast<double>(scale(device())));
    if (limited.heard.smaller.empty()) continue;
    ++halvings;
    fewest = std::min(fewest, static_cast<std::size_t>(limited.heard.smaller.back().samples));
  }
  EXPECT_GT(halvings, 3u) << "the limits were not in the interesting range";
  EXPECT_GT(refused, 0u);
  EXPECT_LE(fewest, 2u * static_cast<std::size_t>(scale(device()))) << "micro-batches went down to a sample or two";
}

TEST_P(OnOomTest, ReplicasHalveTheirMicroBatches) {
  const TrainerOptions one_update{.epochs = 1, .evaluate = false};  // two batches of three: one a replica
  const Outcome whole = train(device(), pool_of(device()), -1, one_update, 2);
  EXPECT_EQ(whole.heard.samples, 32 * scale(device()));
  TrainerOptions halving = one_update;
  halving.on_oom = OnOutOfMemory::accumulate;
  for (const std::int64_t at_call : {0, 1}) {  // in the first replica, in the second
    Outcome limited;
    for (std::uint64_t left = whole.peak; limited.heard.smaller.empty(); left -= scaled(device(), 16u << 10))
      limited = train(device(), left, at_call, halving, 2);
    ASSERT_TRUE(limited.fits) << limited.error;
    EXPECT_LT(testing::relative_difference(limited.weights, whole.weights), device().is_cuda() ? 1e-5 : 1e-6);
    EXPECT_EQ(limited.heard.samples, whole.heard.samples);
    EXPECT_EQ(limited.in_use_after, limited.in_use_before);
  }
}

TEST_P(OnOomTest, TheGradientItselfIsWithinOnePartInAHundredThousand) {
  // The weights' change is the gradient: compared alone, so that large weights hide nothing.
  const TrainerOptions one_update{.epochs = 1, .accumulate = 3, .evaluate = false};
  const std::vector<float> before = train(device(), pool_of(device()), -1, {.epochs = 0}).weights;
  const auto change = [&](std::vector<float> after) {
    for (std::size_t i = 0; i < after.size(); ++i) after[i] -= before[i];
    return after;
  };
  const Outcome whole = train(device(), pool_of(device()), -1, one_update);
  TrainerOptions halving = one_update;
  halving.on_oom = OnOutOfMemory::accumulate;
  Outcome limited;
  for (std::uint64_t left = whole.peak; limited.heard.smaller.empty(); left -= scaled(device(), 32u << 10))
    limited = train(device(), left, 0, halving);
  ASSERT_TRUE(limited.fits) << limited.error;
  EXPECT_LT(testing::relative_difference(change(limited.weights), change(whole.weights)), 1e-5);
}

TEST_P(OnOomTest, GoesOnSmallerFromAnyBatchOn) {
  const TrainerOptions options{.epochs = 2, .accumulate = 2};
  const Outcome whole = train(device(), pool_of(device()), -1, options);
  TrainerOptions halving = options;
  halving.on_oom = OnOutOfMemory::accumulate;
  const std::uint64_t left = whole.peak - scaled(device(), 64u << 10);
  std::int64_t halved = 0;
  for (std::int64_t at = 0; at < 6; ++at) {
    const Outcome limited = train(device(), left, at, halving);
    ASSERT_TRUE(limited.fits) << at << limited.error;
    EXPECT_EQ(limited.heard.samples, 76 * scale(device())) << "every sample counts once, whenever memory runs out";
    EXPECT_EQ(limited.validation.samples, 21 * scale(device()));
    // Later updates see weights that differ by rounding, and lr 1 makes more of it.
    EXPECT_LT(testing::relative_difference(limited.weights, whole.weights), 1e-4) << at;
    EXPECT_EQ(limited.in_use_after, limited.in_use_before);
    if (limited.heard.smaller.empty()) continue;
    ++halved;
    EXPECT_GE(limited.heard.smaller.front().epoch * 2 + limited.heard.smaller.front().update, at / 3 * 2 + at % 3 / 2);
    EXPECT_LT(limited.heard.smaller.front().samples, 16 * scale(device()));
  }
  EXPECT_GE(halved, 3);
}

TEST_P(OnOomTest, WithoutItTheErrorIsThrown) {
  const TrainerOptions options{.epochs = 1, .evaluate = false};
  const Outcome whole = train(device(), pool_of(device()), -1, options);
  const Outcome limited = train(device(), persistent_bytes(device()) + scaled(device(), 128u << 10), 0, options);
  EXPECT_TRUE(whole.fits);
  EXPECT_FALSE(limited.fits);
  EXPECT_TRUE(limited.heard.smaller.empty());
  EXPECT_EQ(limited.in_use_after, limited.in_use_before);
}

TEST_P(OnOomTest, StopsAtOnceWhereTheBatchItselfDoesNotFit) {
  // 4 KiB a scale are left for a batch of 12 KiB a scale.
  const std::uint64_t left = persistent_bytes(device()) + scaled(device(), 4u << 10);
  const Outcome refused = train(device(), left, 0, {.epochs = 1, .on_oom = OnOutOfMemory::accumulate});
  EXPECT_FALSE(refused.fits);
  EXPECT_NE(refused.error.find("smaller micro-batches cannot help"), std::string::npos) << refused.error;
  EXPECT_TRUE(refused.heard.smaller.empty()) << "no halving, which could not help";
  EXPECT_EQ(refused.in_use_after, refused.in_use_before);
  // With room for the batch but not for the step, halving continues.
  const Outcome split = train(device(), left + scaled(device(), 16u << 10), 0,
                              {.epochs = 1, .evaluate = false, .on_oom = OnOutOfMemory::accumulate});
  EXPECT_FALSE(split.heard.smaller.empty());
}

TEST_P(OnOomTest, EvaluationIsSplitToo) {
  Runtime crowded({.threads = 2, .budgets = {{to_string(device()), pool_of(device())}}, .growth = false});
  SmallRun run(crowded, device());
  BfcAllocator& memory = crowded.allocator(device());
  const std::int64_t n = scale(device());
  MemorySource source({8, 8, 3}, 5, 16 * n, 16 * n), validation({8, 8, 3}, 5, 70 * n, 64 * n);
  Trainer trainer(run.step, source, nullptr, {.on_oom = OnOutOfMemory::accumulate});
  const Metrics whole = trainer.evaluate(validation);
  const std::uint64_t before = memory.stats().in_use_bytes, peak = memory.stats().peak_bytes;
  const auto left = static_cast<std::int64_t>(pool_of(device()) - before - (peak - before) * 7 / 10);
  const Tensor ballast = run.model.context(Pass::evaluate).allocate({left}, DType::uint8);
  const Metrics halves = trainer.evaluate(validation);
  EXPECT_EQ(halves.samples, 70 * n);
  EXPECT_EQ(halves.accuracy, whole.accuracy);
  EXPECT_NEAR(halves.loss, whole.loss, 1e-5);
  Trainer plain(run.step, source, nullptr, {});
  EXPECT_THROW((void)plain.evaluate(validation), OutOfMemory) << "the ballast does make a difference";
}

TEST_P(OnOomTest, BatchNormMustBeAskedForByName) {
  SmallRun run(runtime(), device(), true);
  MemorySource source({8, 8, 3}, 5, 16, 8);
  EXPECT_THROW(Trainer(run.step, source, nullptr, {.on_oom = OnOutOfMemory::accumulate}), ConfigError);
  Trainer asked(run.step, source, nullptr, {.on_oom = OnOutOfMemory::accumulate_with_batch_norm});
  EXPECT_EQ(asked.run().updates, 2);
}

TEST_P(OnOomTest, SlicesAreTheSamplesAlignedForKernels) {
  const Context c = context({PrecisionKind::mixed_float16});
  const Batch batch = testing::make_batch(c, {3, 3, 1}, 5, 0, 7);  // 18 bytes a sample: most views are not aligned
  const std::vector<float> all = to_host_floats(batch.at(kImages), c.stream);
  const std::vector<std::int32_t> labels = to_host<std::int32_t>(batch.at(kLabels), c.stream);
  for (std::int64_t first = 0; first < 7; ++first) {
    const Batch micro_batch = slice(c, batch, first, 7 - first);
    EXPECT_EQ(micro_batch.size, 7 - first);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(micro_batch.at(kImages).data()) % 16, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(micro_batch.at(kLabels).data()) % 16, 0u);
    EXPECT_EQ(to_host_floats(micro_batch.at(kImages), c.stream),
              std::vector<float>(all.begin() + first * 9, all.end()));
    EXPECT_EQ(to_host<std::int32_t>(micro_batch.at(kLabels), c.stream),
              std::vector<std::int32_t>(labels.begin() + first, labels.end()));
  }
  EXPECT_THROW((void)slice(c, batch, 5, 3), ShapeError);
}

}  // namespace
}  // namespace bantam::on_oom_test
