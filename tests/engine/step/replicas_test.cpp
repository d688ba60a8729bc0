// Replicas of a step: the tree by hand, the same bits in every mode and with any number of threads, what is left of
// updates that fail, epochs and evaluations of a Trainer.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "bantam/base/error.h"
#include "bantam/engine/comm/local_network.h"
#include "bantam/engine/comm/mesh.h"
#include "bantam/engine/step/replica_tree.h"
#include "bantam/engine/train/captured_steps.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/kernels/update/update_reference.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/shared_source.h"

namespace bantam::replicas_test {
namespace {

using kernels::reference::tree_node;
using testing::EngineTest;
using testing::MemorySource;
using testing::SharedSource;

class ReplicasTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(ReplicasTest);

const OptimizerOptions kSgd{.rule = sgd({.learning_rate = 0.1f, .momentum = 0.9f})};

struct Training {
  Training(Runtime& runtime, Device device, int replicas, const OptimizerOptions& options = kSgd,
           const ModelOptions& model_options = {.seed = 2}, DType gradients = DType::float32)
      : model(runtime, device, testing::small_network(), model_options),
        optimizer(model, options),
        step(model, optimizer, {.metrics = {top_k(2)}}, {.replicas = replicas, .gradients = gradients}),
        batches(step) {}
  Batch batch(std::int64_t first, std::int64_t samples) {
    return testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, first, samples);
  }
  /// Batches of 4 samples, the last of `short_by` fewer.
  void update(std::int64_t count, std::int64_t first = 0, std::int64_t short_by = 0) {
    ASSERT_TRUE(batches.accumulate(count, 4 * count - short_by, [&](std::int64_t i) -> std::optional<Batch> {
      return batch(first + 4 * i, i + 1 == count ? 4 - short_by : 4);
    }));
    step.update();
  }
  std::vector<float> floats(const Tensor& tensor) {
    return to_host<float>(tensor, model.runtime().stream(model.device()));
  }
  std::vector<float> gradient() { return floats(model.parameters().gradient()); }
  std::vector<float> statistics() { return floats(model.buffers().current()); }
  /// Every bit that outlives a step.
  std::vector<std::byte> state() {
    StateRegistry registry;
    model.register_state(registry);
    optimizer.register_state(registry);
    std::vector<std::byte> all;
    for (const StateEntry& entry : registry.tensors()) {
      std::vector<std::byte> bytes(entry.tensor.bytes());
      copy_bytes(bytes.data(), entry.tensor.data(), bytes.size(), model.runtime().stream(model.device()));
      synchronize(model.runtime().stream(model.device()));
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

  Model model;
  Optimizer optimizer;
  TrainingStep step;
  MicroBatches batches;
};

/// What one replica comes to, as a step of its own.
struct Alone {
  std::vector<float> gradient, statistics;
  Metrics metrics;
};

Alone alone(Runtime& runtime, Device device, std::int64_t replica, std::int64_t accumulate, std::int64_t samples) {
  Training training(runtime, device, 1);
  const std::int64_t first = replica * accumulate * 4;
  for (std::int64_t i = 0; i < accumulate; ++i) {
    const std::int64_t at = first + 4 * i, size = std::min<std::int64_t>(4, samples - at);
    training.step.micro_batch(training.batch(at, size), at, samples);
  }
  Alone result{.gradient = training.gradient(), .statistics = training.floats(training.model.buffers().next())};
  training.step.update();
  result.metrics = training.step.read_metrics().at(0);
  return result;
}

void expect_tree(Runtime& runtime, Device device, int replicas, std::int64_t accumulate, std::int64_t short_by) {
  SCOPED_TRACE(::testing::Message() << replicas << " replicas of " << accumulate);
  const std::int64_t samples = 4 * accumulate * replicas - short_by;
  std::vector<std::vector<float>> gradients, statistics;
  double loss = 0, correct = 0, top = 0;
  for (int r = 0; r < replicas; ++r) {
    const Alone one = alone(runtime, device, r, accumulate, samples);
    gradients.push_back(one.gradient);
    statistics.push_back(one.statistics);
    const auto count = static_cast<double>(one.metrics.samples);
    loss += one.metrics.loss * count, correct += one.metrics.accuracy * count;
    top += one.metrics.values.at(0).sums.at(0);
  }
  int levels = 0;
  while (1 << levels < replicas) ++levels;
  Training training(runtime, device, replicas);
  training.update(accumulate * replicas, 0, short_by);
  EXPECT_EQ(training.gradient(), tree_node(gradients, levels, 0));
  std::vector<float> mean = tree_node(statistics, levels, 0);
  for (float& value : mean) value /= static_cast<float>(replicas);
  EXPECT_EQ(training.statistics(), mean);
  const std::vector<Metrics> metrics = training.step.read_metrics();
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].samples, samples);
  // A mean and its sum again: a few roundings of double.
  EXPECT_NEAR(metrics[0].loss * static_cast<double>(samples), loss, 1e-12 * loss);
  EXPECT_NEAR(metrics[0].accuracy * static_cast<double>(samples), correct, 1e-9);
  EXPECT_EQ(metrics[0].values.at(0).sums.at(0), top);
}

TEST_P(ReplicasTest, AreTheTreeOfStepsOfTheirOwn) {
  for (const int replicas : {2, 4, 8}) {
    expect_tree(runtime(), device(), replicas, 1, 0);
    expect_tree(runtime(), device(), replicas, 2, 0);
  }
  expect_tree(runtime(), device(), 4, 1, 3);  // a short last batch
}

/// Gradients that are added in float16: each replica's, and each sum, is rounded. Statistics and metrics are not.
TEST_P(ReplicasTest, AreTheTreeInFloat16) {
  for (const int replicas : {2, 4, 8}) {
    std::vector<std::vector<Half>> gradients;
    std::vector<std::vector<float>> statistics;
    for (int r = 0; r < replicas; ++r) {
      const Alone one = alone(runtime(), device(), r, 2, 8 * replicas);
      std::vector<Half>& rounded = gradients.emplace_back();
      for (const float value : one.gradient) rounded.emplace_back(value);
      statistics.push_back(one.statistics);
    }
    const int levels = std::countr_zero(static_cast<unsigned>(replicas));
    const std::vector<Half> root = tree_node(gradients, levels, 0);
    Training training(runtime(), device(), replicas, kSgd, {.seed = 2}, DType::float16);
    training.update(2 * replicas);
    EXPECT_EQ(training.gradient(), std::vector<float>(root.begin(), root.end())) << replicas << " replicas";
    std::vector<float> mean = tree_node(statistics, levels, 0);
    for (float& value : mean) value /= static_cast<float>(replicas);
    EXPECT_EQ(training.statistics(), mean);
  }
}

/// Half a unit of float16 (2^-11 of the value, or 2^-25) for each of log2(R) + 1 roundings, of sums that are no larger
/// than the sum of magnitudes: far from float32's gradients nothing has gone.
TEST_P(ReplicasTest, Float16IsNearFloat32) {
  Training wide(runtime(), device(), 4), narrow(runtime(), device(), 4, kSgd, {.seed = 2}, DType::float16);
  std::vector<float> magnitudes;
  for (int r = 0; r < 4; ++r) {
    const std::vector<float> one = alone(runtime(), device(), r, 1, 16).gradient;
    magnitudes.resize(one.size());
    for (std::size_t i = 0; i < one.size(); ++i) magnitudes[i] += std::abs(one[i]);
  }
  wide.update(4);
  narrow.update(4);
  const std::vector<float> a = wide.gradient(), b = narrow.gradient();
  std::size_t others = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], 3.01f * (0x1p-11f * magnitudes[i] + 4 * 0x1p-25f)) << i;
    others += a[i] != b[i] ? 1 : 0;
  }
  EXPECT_GT(others, a.size() / 4);
}

/// Gradients beyond float16's range: the update is skipped and the loss scale halved, until they fit.
TEST_P(ReplicasTest, OverflowInFloat16HalvesTheLossScale) {
  OptimizerOptions options = kSgd;
  options.initial_loss_scale = 0x1p24f;
  const ModelOptions scaled{.precision = {PrecisionKind::mixed_float16}, .seed = 2};
  Training training(runtime(), device(), 2, options, scaled, DType::float16);
  std::vector<UpdateReport> updates;
  const auto update = [&] {
    training.update(2);
    training.step.begin_reading();
    (void)training.step.finish_reading(nullptr, &updates);
    return updates.back();
  };
  UpdateReport last = update();
  EXPECT_TRUE(last.skipped);
  EXPECT_EQ(last.loss_scale, 0x1p24f);
  int skipped = 0;
  for (; last.skipped && skipped < 30; ++skipped) last = update();
  EXPECT_LT(skipped, 24) << "2^24 halved so often is 1";
  EXPECT_EQ(last.loss_scale, std::ldexp(0x1p24f, -skipped));
}

TEST_P(ReplicasTest, OneReplicaHasTheBitsOfAPlainStep) {
  Training plain(runtime(), device(), 1), one(runtime(), device(), 1);
  for (std::int64_t u = 0; u < 3; ++u) {
    for (std::int64_t i = 0; i < 3; ++i) plain.step.micro_batch(plain.batch(12 * u + 4 * i, 4), 4 * i, 12);
    plain.step.update();
    one.update(3, 12 * u);
  }
  EXPECT_EQ(one.state(), plain.state());
  EXPECT_EQ(one.step.read_metrics().back().loss, plain.step.read_metrics().back().loss);
}

/// Finished batches, gone round.
class Ring : public DeviceBatches {
 public:
  explicit Ring(Training& training) {
    for (std::int64_t i = 0; i < 16; ++i) ring_.push_back(training.batch(4 * i, 4));
  }
  std::int64_t left() const override { return 1 << 20; }
  std::int64_t most_at_once() const override { return 16; }
  Batch make(const Context&, std::int64_t i, std::int64_t) override {
    return ring_[static_cast<std::size_t>((next_ + i) % 16)];
  }
  void advance(std::int64_t count) override { next_ = (next_ + count) % 16; }

 private:
  std::vector<Batch> ring_;
  std::int64_t next_ = 0;
};

/// Everything at once: recompute, accumulation, mixed precision, averages, clipping, pruning.
struct Everything {
  OptimizerOptions optimizer{.rule = adamw({.learning_rate = 0.01f, .weight_decay = 0.0f}),
                             .clip_norm = 0.5f,
                             .ema = EmaOptions{.decay = 0.9},
                             .prune = PruneOptions{.end = 4, .frequency = 2}};
  ModelOptions model{.seed = 4};
};

struct Outcome {
  std::vector<std::byte> state;
  std::vector<double> losses;
  std::uint64_t arena = 0;
  bool operator==(const Outcome& other) const { return state == other.state && losses == other.losses; }
};

Outcome train(Device device, int threads, StepMode mode, const Everything& options) {
  Runtime runtime({.threads = threads});
  Training training(runtime, device, 4, options.optimizer, options.model);
  if (mode != StepMode::eager) training.step.prepare({.batches = {4}, .accumulates = true});
  Ring ring(training);
  CapturedSteps steps(training.step, ring, 8, mode, 2);
  for (int done = 0; done < 6;) done += static_cast<int>(steps.run(6 - done));
  EXPECT_EQ(steps.kernels_an_update() > 0, device.is_cuda() && mode == StepMode::captured);
  Outcome outcome{.arena = training.step.arena_bytes()};
  for (const Metrics& metrics : training.step.read_metrics()) outcome.losses.push_back(metrics.loss);
  EXPECT_EQ(outcome.losses.size(), 6u);
  EXPECT_EQ(runtime.allocator(device).stats().departures, 0u);
  outcome.state = training.state();
  return outcome;
}

TEST_P(ReplicasTest, HaveTheSameBitsInEveryModeAndOnAnyNumberOfThreads) {
  for (const PrecisionKind precision :
       {PrecisionKind::float32, PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16}) {
    Everything plain;
    plain.model.precision.kind = precision;
    const Outcome expected = train(device(), 2, StepMode::eager, plain);
    EXPECT_GT(train(device(), 2, StepMode::planned, plain).arena, 0u);
    EXPECT_EQ(train(device(), 2, StepMode::planned, plain), expected);
    EXPECT_EQ(train(device(), 2, StepMode::captured, plain), expected);
    EXPECT_EQ(train(device(), 1, StepMode::planned, plain), expected);
    EXPECT_EQ(train(device(), 3, StepMode::planned, plain), expected);
    Everything recomputed = plain;
    recomputed.model.recompute = {.kind = RecomputeOptions::Kind::all};
    EXPECT_EQ(train(device(), 2, StepMode::captured, recomputed), expected);
    EXPECT_EQ(train(device(), 2, StepMode::eager, recomputed), expected);
  }
}

TEST_P(ReplicasTest, WarmUpsAndLooksChangeNothing) {
  Training looked(runtime(), device(), 4), plain(runtime(), device(), 4);
  looked.step.warm_up(4, true);
  const std::vector<std::byte> before = looked.state();
  int parameters = 0;
  StepHooks hooks;
  hooks.begin = [](std::int64_t, const Batch&) {};
  hooks.output = [](NodeId, NodeId, const Tensor&) {};
  hooks.loss = [](const Tensor&) {};
  hooks.gradient = [](const char*, const Tensor&) {};
  hooks.parameter = [&](const Parameter&) { ++parameters; };
  looked.step.look_into(hooks, 1.0f, [&] {
    (void)looked.batches.accumulate(4, 0, [&](std::int64_t i) { return looked.batch(4 * i, 4); });
  });
  EXPECT_GT(parameters, 0);
  EXPECT_EQ(looked.state(), before);
  for (Training* training : {&looked, &plain}) training->update(8);
  EXPECT_EQ(looked.state(), plain.state());
  EXPECT_EQ(looked.step.read_metrics().at(0).loss, plain.step.read_metrics().at(0).loss);
}

TEST_P(ReplicasTest, AnUpdateThatFailsLeavesNothing) {
  Training failed(runtime(), device(), 4), plain(runtime(), device(), 4);
  failed.step.micro_batch(failed.batch(0, 4), 0, 16);
  failed.step.begin_replica();
  failed.step.micro_batch(failed.batch(4, 4), 4, 16);
  EXPECT_THROW(failed.step.update(), Error) << "two of four replicas";
  for (int r = 0; r < 4; ++r) failed.step.begin_replica();
  EXPECT_THROW(failed.step.begin_replica(), Error) << "a fifth";
  EXPECT_THROW(failed.batches.accumulate(6, 0, [](std::int64_t) { return std::nullopt; }), Error);
  EXPECT_FALSE(failed.batches.accumulate(4, 16, [&](std::int64_t i) -> std::optional<Batch> {
    if (i == 3) return std::nullopt;
    return failed.batch(4 * i, 4);
  }));
  for (Training* training : {&failed, &plain}) training->update(4, 40);
  EXPECT_EQ(failed.state(), plain.state());
  EXPECT_EQ(failed.step.read_metrics().at(0).loss, plain.step.read_metrics().at(0).loss);
}

TEST_P(ReplicasTest, OverflowInOneReplicaSkipsTheUpdate) {
  Training training(runtime(), device(), 4, kSgd, {.precision = {PrecisionKind::mixed_float16}, .seed = 2});
  training.update(4);
  const std::vector<float> weights = training.floats(training.model.parameters().master());
  const std::vector<float> statistics = training.statistics();
  ASSERT_TRUE(training.batches.accumulate(4, 16, [&](std::int64_t i) -> std::optional<Batch> {
    Batch batch = training.batch(4 * i, 4);
    if (i == 1) {
      const std::vector<std::uint16_t> infinite(static_cast<std::size_t>(batch.at(kImages).shape().elements()), 0x7c00);
      copy_bytes(batch.at(kImages).data(), infinite.data(), batch.at(kImages).bytes(),
                 training.model.runtime().stream(training.model.device()));
      synchronize(training.model.runtime().stream(training.model.device()));
    }
    return batch;
  }));
  training.step.update();
  EXPECT_EQ(training.floats(training.model.parameters().master()), weights);
  EXPECT_EQ(training.statistics(), statistics);
  EXPECT_EQ(training.optimizer.control().skipped, 1);
  training.update(4);
  EXPECT_NE(training.floats(training.model.parameters().master()), weights);
  EXPECT_EQ(training.optimizer.control().skipped, 1);
}

/// Notes what a trainer tells.
struct Heard : Callback {
  void on_progress(const ProgressEvent& event) override {
    for (const Metrics& metrics : event.metrics) samples.push_back(metrics.samples);
  }
  std::vector<std::int64_t> samples;
};

TEST_P(ReplicasTest, EpochsHaveWholeUpdatesOnly) {
  MemorySource train({8, 8, 3}, 5, 4 * 9 + 1, 4);  // 10 batches, of which the last has one sample
  Training training(runtime(), device(), 4);
  Heard heard;
  Trainer trainer(training.step, train, nullptr, {.epochs = 2});
  trainer.add(heard);
  EXPECT_EQ(trainer.run().updates, 4) << "two batches of each epoch are left out";
  EXPECT_EQ(heard.samples, (std::vector<std::int64_t>{16, 16, 16, 16}));
  MemorySource few({8, 8, 3}, 5, 12, 4);
  EXPECT_THROW(Trainer(training.step, few, nullptr, {}), DataError) << "3 batches for 4 replicas";
}

TEST_P(ReplicasTest, AResumedEpochHasTheSameBits) {
  MemorySource train({8, 8, 3}, 5, 4 * 16, 4);
  Training whole(runtime(), device(), 4), cut(runtime(), device(), 4);
  Trainer(whole.step, train, nullptr, {.epochs = 2, .accumulate = 2}).run();
  Trainer first(cut.step, train, nullptr, {.epochs = 2, .accumulate = 2, .max_updates = 3});
  first.run();
  const TrainerPosition position = first.position();
  EXPECT_EQ(position.epoch, 1);
  EXPECT_EQ(position.update, 1);
  Trainer(cut.step, train, nullptr, {.epochs = 2, .accumulate = 2, .first = position}).run();
  EXPECT_EQ(cut.state(), whole.state());
}

TEST_P(ReplicasTest, EvaluationsCountEverySampleOnce) {
  MemorySource train({8, 8, 3}, 5, 32, 4), validation({8, 8, 3}, 5, 4 * 6 + 3, 4), tiny({8, 8, 3}, 5, 5, 4);
  Training plain(runtime(), device(), 1), replicas(runtime(), device(), 4);
  for (MemorySource* source : {&validation, &tiny}) {
    const Metrics expected = Trainer(plain.step, train, source, {}).evaluate(*source);
    const Metrics found = Trainer(replicas.step, train, source, {}).evaluate(*source);
    EXPECT_EQ(found.samples, expected.samples);
    EXPECT_EQ(found.accuracy, expected.accuracy);
    EXPECT_EQ(found.values.at(0).sums, expected.values.at(0).sums);
    EXPECT_NEAR(found.loss, expected.loss, 1e-12 * expected.loss);  // sums in another order
  }
}

struct Ended {
  std::vector<std::byte> state;
  double loss = 0;
  std::vector<double> validation;
  bool operator==(const Ended&) const = default;
};

/// Two epochs of 4 replicas x 2 batches; this rank's part of them.
Ended train_rank(const ReplicaOptions& replicas, int threads, Device device = Device::cpu(),
                 StepMode mode = StepMode::planned, const RecomputeOptions& recompute = {}) {
  Runtime runtime({.threads = threads});
  Model model(runtime, device, testing::small_network(), {.seed = 2, .recompute = recompute});
  Optimizer optimizer(model, {.rule = adamw({.weight_decay = 0.0f}), .clip_norm = 0.5f, .ema = EmaOptions{}});
  TrainingStep step(model, optimizer, {.metrics = {top_k(2)}}, replicas);
  SharedSource train({8, 8, 3}, 5, 4 * 19, 4);
  MemorySource validation({8, 8, 3}, 5, 4 * 5 + 3, 4);
  const TrainResult result = Trainer(step, train, &validation, {.epochs = 2, .accumulate = 2, .mode = mode}).run();
  Ended ended{.loss = result.train.loss, .validation = {result.validation.loss, result.validation.accuracy}};
  EXPECT_EQ(result.train.samples, 64);
  EXPECT_EQ(result.validation.samples, 23);
  StateRegistry registry;
  model.register_state(registry);
  optimizer.register_state(registry);
  for (const StateEntry& entry : registry.tensors()) {
    std::vector<std::byte> bytes(entry.tensor.bytes());
    copy_bytes(bytes.data(), entry.tensor.data(), bytes.size(), runtime.stream(device));
    synchronize(runtime.stream(device));
    ended.state.insert(ended.state.end(), bytes.begin(), bytes.end());
  }
  return ended;
}

/// The same on ranks that are threads, rank r on devices[r]; each with a recompute of its own.
std::vector<Ended> train_ranks(const std::vector<int>& dealt, const std::vector<Device>& devices, StepMode mode,
                               DType gradients = DType::float32) {
  std::vector<std::unique_ptr<Network>> networks = local_networks(static_cast<int>(dealt.size()));
  std::vector<Ended> ended(dealt.size());
  std::vector<std::jthread> ranks;
  for (std::size_t rank = 0; rank < dealt.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      Mesh mesh(std::move(networks[rank]));
      try {
        const RecomputeOptions recompute{.kind = rank % 2 == 1 ? RecomputeOptions::Kind::all
                                                               : RecomputeOptions::Kind::none};
        ended[rank] = train_rank(
            {.replicas = 4, .dealt = dealt, .rank = static_cast<int>(rank), .ranks = &mesh, .gradients = gradients}, 1,
            devices[rank], mode, recompute);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
        mesh.fail(error.what());
      }
    });
  }
  ranks.clear();
  return ended;
}

/// Two ranks on two GPUs, in every mode, by memory that both reach and by NCCL: one GPU has all replicas otherwise.
TEST(ReplicasOnGpusTest, HaveTheBitsOfOneGpu_cuda) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "two GPUs are needed; there are " << cuda_device_count();
  for (const DType gradients : {DType::float32, DType::float16}) {
    const Ended expected = train_rank({.replicas = 4, .gradients = gradients}, 1, Device::cuda(0));
    for (const char* const transport : {"peer", "nccl"}) {
      ::setenv("BANTAM_TRANSPORT", transport, 1);
      for (const StepMode mode : {StepMode::eager, StepMode::planned, StepMode::captured})
        for (const std::vector<int>& dealt : {std::vector<int>{2, 2}, {1, 3}, {3, 1}})
          for (const Ended& ended : train_ranks(dealt, {Device::cuda(0), Device::cuda(1)}, mode, gradients))
            EXPECT_EQ(ended, expected) << transport << ", " << dealt[0] << " + " << dealt[1] << ", "
                                       << to_string(gradients);
    }
  }
  ::unsetenv("BANTAM_TRANSPORT");
}

TEST(ReplicasOnRanksTest, HaveTheBitsOfOneRank) {
  std::vector<Ended> of_types;
  for (const DType gradients : {DType::float32, DType::float16}) {
    const Ended& expected = of_types.emplace_back(train_rank({.replicas = 4, .gradients = gradients}, 2));
    for (const std::vector<int>& dealt : {std::vector<int>{4}, {2, 2}, {1, 3}, {2, 1, 1}, {1, 1, 1, 1}}) {
      const std::vector<Ended> ended =
          train_ranks(dealt, std::vector<Device>(dealt.size(), Device::cpu()), StepMode::planned, gradients);
      for (std::size_t rank = 0; rank < dealt.size(); ++rank) {
        EXPECT_EQ(ended[rank], expected) << "rank " << rank << " of " << dealt.size() << ", " << to_string(gradients);
      }
    }
  }
  EXPECT_NE(of_types[0].state, of_types[1].state);
}

TEST(ReplicasOnRanksTest, NeedSomebodyToTalkTo) {
  Runtime runtime({.threads = 1});
  Training one(runtime, Device::cpu(), 1);
  TrainingStep alone(one.model, one.optimizer, {}, {.replicas = 2, .dealt = {1, 1}});
  alone.micro_batch(one.batch(0, 4), 0, 8);
  EXPECT_THROW(alone.update(), Error);
  MemorySource whole({8, 8, 3}, 5, 32, 4);
  EXPECT_THROW(Trainer(alone, whole, nullptr, {}), Error) << "it cannot be read in shares";
}

TEST(ReplicaTreeTest, HasAPlaceForEachSumThatWaits) {
  EXPECT_EQ(places_of_tree({.first = 0, .count = 1}), 0);
  EXPECT_EQ(places_of_tree({.first = 0, .count = 2}), 1);
  EXPECT_EQ(places_of_tree({.first = 0, .count = 4}), 2);
  EXPECT_EQ(places_of_tree({.first = 8, .count = 8}), 3);
  EXPECT_EQ(places_of_tree({.first = 0, .count = 1024}), 10);
  EXPECT_EQ(places_of_tree({.first = 10, .count = 6}), 3) << "10 to 11, 12 to 13, 14";
}

TEST(ReplicaTreeTest, EndsWithEachSumInAPlace) {
  using Places = std::vector<int>;
  EXPECT_EQ(places_of_sums({.first = 0, .count = 1}), (Places{0}));
  EXPECT_EQ(places_of_sums({.first = 4, .count = 4}), (Places{0}));
  EXPECT_EQ(places_of_sums({.first = 0, .count = 3}), (Places{1, 0})) << "0 to 1, 2";
  EXPECT_EQ(places_of_sums({.first = 10, .count = 6}), (Places{1, 0})) << "10 to 11, 12 to 15";
  EXPECT_EQ(places_of_sums({.first = 1, .count = 6}), (Places{1, 2, 3, 0})) << "1, 2 to 3, 4 to 5, 6";
}

TEST(ReplicaTreeTest, AddsBlocksInItsOrder) {
  // (2^53 + 1) + (1 + 1): the first sum rounds to 2^53; from the left it were 2^53 + 1 + 1 + 1.
  EXPECT_EQ(tree_sum_of({{0x1p53, 1}, {1, 2}, {1, 3}, {1, 4}}), (std::vector<double>{0x1p53 + 2, 10}));
  EXPECT_EQ(tree_sum_of({{3, 4}}), (std::vector<double>{3, 4}));
}

TEST(ReplicaOptionsTest, AreChecked) {
  EXPECT_THROW(check_replicas({.replicas = 2, .gradients = DType::bfloat16}), ConfigError);
  for (const int replicas : {0, 3, -4, 2048}) EXPECT_THROW(check_replicas({.replicas = replicas}), ConfigError);
  EXPECT_THROW(check_replicas({.replicas = 4, .dealt = {2, 1}}), ConfigError);
  EXPECT_THROW(check_replicas({.replicas = 4, .dealt = {4, 0}}), ConfigError);
  EXPECT_THROW(check_replicas({.replicas = 4, .dealt = {2, 2}, .rank = 2}), ConfigError);
  const ReplicaOptions third{.replicas = 16, .dealt = {5, 5, 6}, .rank = 2};
  check_replicas(third);
  EXPECT_EQ(third.first(), 10);
  EXPECT_EQ(third.count(), 6);
}

}  // namespace
}  // namespace bantam::replicas_test
