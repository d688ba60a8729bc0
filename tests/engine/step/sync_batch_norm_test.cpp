// Synchronised batch norms: the op by finite differences beside another rank's batch; ranks that are threads against
// one rank with the whole batch; short batches, recompute, modes, and what is refused.
#include "bantam/engine/ops/sync_batch_norm.h"

#include <cmath>
#include <numeric>
#include <thread>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/norm_sync.h"
#include "bantam/engine/comm/local_network.h"
#include "bantam/engine/comm/mesh.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/model/synchronise.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/train/trainer.h"
#include "tests/engine/finite_differences.h"
#include "tests/engine/shared_source.h"

namespace bantam::sync_batch_norm_test {
namespace {

using testing::expect_directional;
using testing::SharedSource;

class SyncBatchNormTest : public testing::EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(SyncBatchNormTest);

/// Adds what another rank with a batch of its own says, whose outputs nobody reads: its gradients are 0.
class OtherRank : public NormSync {
 public:
  OtherRank(std::int64_t channels, std::int64_t rows, const std::vector<float>& x) {
    message_.push_back(static_cast<double>(rows));
    message_.resize(static_cast<std::size_t>(2 * channels + 1));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = 1 + i % static_cast<std::size_t>(channels);
      message_[c] += static_cast<double>(x[i]);
      message_[c + static_cast<std::size_t>(channels)] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
  }
  void sum(const Context& context, const Tensor& values) override {
    if (values.dtype() != DType::float64) return;
    ASSERT_EQ(values.bytes(), message_.size() * sizeof(double));
    std::vector<double> sums(message_.size());
    copy_bytes(sums.data(), values.data(), values.bytes(), context.stream);
    synchronize(context.stream);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += message_[i];
    copy_bytes(values.data(), sums.data(), values.bytes(), context.stream);
    synchronize(context.stream);
    ++calls;
  }
  int calls = 0;

 private:
  std::vector<double> message_;
};

TEST_P(SyncBatchNormTest, InputGradientsAreThoseOfTheWholeBatch) {
  const std::int64_t channels = 6, rows = 40;
  OtherRank other(channels, rows, testing::random_floats(rows * channels, 21, -1.0f, 4.0f));
  const std::vector<float> scales = testing::random_floats(channels, 22, 0.5f, 2.0f),
                           shifts = testing::random_floats(channels, 23);
  for (const ActivationFunction f : {ActivationFunction{}, ActivationFunction{Activation::gelu}}) {
    Context base = context();
    base.step.norms = &other;
    const Norm norm{.scale = base.upload({channels}, scales.data()),
                    .shift = base.upload({channels}, shifts.data()),
                    .activation = f};
    expect_directional(
        base, {3, 2, 4, channels}, -2.0f, 2.0f,
        [&](const Context& ctx, const Tensor& x) { return ops::sync_batch_norm(ctx, x, norm); }, 2e-3);
  }
  EXPECT_GT(other.calls, 0);
}

TEST_P(SyncBatchNormTest, AloneItIsBatchNorm) {
  const Context base = context();
  const std::vector<float> values = testing::random_floats(4 * 9 * 8, 3);
  const Tensor x = base.upload({4, 3, 3, 8}, values.data());
  EXPECT_EQ(to_host<float>(ops::sync_batch_norm(base, x, Norm{}), base.stream),
            to_host<float>(ops::batch_norm(base, x, Norm{}), base.stream));
}

TEST(SynchronisedNormsTest, AreInNoFusion) {
  Graph graph({8, 8, 8});
  graph.add("before", batch_norm({.activation = {Activation::relu}}));
  graph.add("depthwise", depthwise_conv2d({.padding = Padding::same(), .bias = false}));
  graph.add("after", batch_norm({.activation = {Activation::relu}}));
  const Graph synchronised = with_synchronised_norms(graph);
  EXPECT_FALSE(has_synchronised_norms(graph));
  EXPECT_TRUE(has_synchronised_norms(synchronised));
  ASSERT_EQ(synchronised.nodes().size(), graph.nodes().size());
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) EXPECT_EQ(synchronised.nodes()[i].name, graph.nodes()[i].name);
  const auto with_norms = [](const Graph& of) {
    int found = 0;
    for (const Fusion& fusion : find_fusions(of, {}))
      for (NodeId node = fusion.first; node <= fusion.last; ++node)
        found += of.node(node).layer->kind() == "batch_norm" ? 1 : 0;
    return found;
  };
  EXPECT_GT(with_norms(graph), 0);
  EXPECT_EQ(with_norms(synchronised), 0);
}

/// What an update leaves.
struct Ended {
  std::vector<float> weights, statistics;
  double loss = 0;
  bool operator==(const Ended&) const = default;
};

struct Training {
  Training(Runtime& runtime, Device device, const Graph& graph, const ReplicaOptions& replicas,
           const RecomputeOptions& recompute = {})
      : model(runtime, device, graph, {.seed = 2, .recompute = recompute}),
        optimizer(model, {.rule = sgd({.learning_rate = 0.1f, .momentum = 0.9f})}),
        step(model, optimizer, {}, replicas) {}
  /// Samples first … first + own - 1 of an effective batch of `all`, which begins at sample `base`.
  void update(std::int64_t base, std::int64_t first, std::int64_t own, std::int64_t all) {
    step.micro_batch(testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, base + first, own), first, all);
    step.update();
  }
  Ended ended() {
    const Stream stream = model.runtime().stream(model.device());
    return {to_host<float>(model.parameters().master(), stream), to_host<float>(model.buffers().current(), stream),
            step.read_metrics().back().loss};
  }
  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

constexpr int kUpdates = 3;

/// Ranks that are threads, rank r on devices[r], with samples[r] of each update.
std::vector<Ended> train_ranks(const std::vector<Device>& devices, const std::vector<std::int64_t>& samples,
                               const std::vector<RecomputeOptions>& recompute = {}) {
  std::vector<std::unique_ptr<Network>> networks = local_networks(static_cast<int>(devices.size()));
  std::vector<Ended> ended(devices.size());
  std::vector<std::jthread> threads;
  const std::int64_t all = std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    threads.emplace_back([&, rank] {
      Mesh mesh(std::move(networks[rank]));
      try {
        Runtime runtime({.threads = 1});
        Training training(runtime, devices[rank], with_synchronised_norms(testing::small_network()),
                          {.replicas = static_cast<int>(devices.size()),
                           .dealt = std::vector<int>(devices.size(), 1),
                           .rank = static_cast<int>(rank),
                           .ranks = &mesh},
                          recompute.empty() ? RecomputeOptions{} : recompute[rank]);
        training.step.warm_up(samples[rank], false);
        const std::int64_t first =
            std::accumulate(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(rank), std::int64_t{0});
        for (std::int64_t u = 0; u < kUpdates; ++u) training.update(u * all, first, samples[rank], all);
        ended[rank] = training.ended();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
        mesh.fail(error.what());
      }
    });
  }
  threads.clear();
  return ended;
}

/// One rank with the whole batch, and norms of its own.
Ended train_whole(Device device, std::int64_t samples) {
  Runtime runtime({.threads = 1});
  Training training(runtime, device, testing::small_network(), {});
  for (std::int64_t u = 0; u < kUpdates; ++u) training.update(u * samples, 0, samples, samples);
  return training.ended();
}

/// Three updates of float32 at a learning rate of 0.1: roundings of 2^-24 grow to some hundred of them.
void expect_near(const Ended& found, const Ended& whole) {
  EXPECT_LT(testing::relative_difference(found.weights, whole.weights), 1e-5);
  EXPECT_LT(testing::relative_difference(found.statistics, whole.statistics), 1e-5);
  EXPECT_NEAR(found.loss, whole.loss, 1e-4 * whole.loss);
}

TEST(SyncBatchNormOnRanksTest, IsOneRankWithTheWholeBatch) {
  for (const std::vector<std::int64_t>& samples :
       {std::vector<std::int64_t>{4, 4}, {4, 4, 4, 4}, {4, 1}, {3, 3, 3, 2}}) {
    const std::int64_t all = std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
    const Ended whole = train_whole(Device::cpu(), all);
    const std::vector<Ended> ended = train_ranks(std::vector<Device>(samples.size(), Device::cpu()), samples);
    for (const Ended& rank : ended) {
      EXPECT_EQ(rank, ended[0]) << "all ranks have the same bits";
      expect_near(rank, whole);
    }
  }
}

TEST(SyncBatchNormOnRanksTest, WithoutItStatisticsAreOthers) {
  Runtime runtime({.threads = 1});
  Training training(runtime, Device::cpu(), testing::small_network(), {.replicas = 2});
  for (std::int64_t u = 0; u < kUpdates; ++u) {
    for (std::int64_t r = 0; r < 2; ++r) {
      if (r > 0) training.step.begin_replica();
      training.step.micro_batch(
          testing::make_batch(training.model.context(Pass::train), {8, 8, 3}, 5, u * 8 + r * 4, 4), r * 4, 8);
    }
    training.step.update();
  }
  EXPECT_GT(testing::relative_difference(training.ended().statistics, train_whole(Device::cpu(), 8).statistics), 1e-3);
}

TEST(SyncBatchNormOnRanksTest, RanksMayRecomputeDifferently) {
  const std::vector<Device> devices(2, Device::cpu());
  const std::vector<Ended> none = train_ranks(devices, {4, 4});
  const std::vector<Ended> one =
      train_ranks(devices, {4, 4}, {RecomputeOptions{}, {.kind = RecomputeOptions::Kind::all}});
  EXPECT_EQ(one, none);
}

/// A Trainer's run in a mode of its step.
Ended train_in_mode(Communicator& ranks, int rank, Device device, StepMode mode) {
  Runtime runtime({.threads = 1});
  Training training(runtime, device, with_synchronised_norms(testing::small_network()),
                    {.replicas = 2, .dealt = {1, 1}, .rank = rank, .ranks = &ranks});
  SharedSource train({8, 8, 3}, 5, 4 * 12, 4);
  const TrainResult result = Trainer(training.step, train, nullptr, {.epochs = 2, .accumulate = 2, .mode = mode}).run();
  const Stream stream = runtime.stream(device);
  return {to_host<float>(training.model.parameters().master(), stream),
          to_host<float>(training.model.buffers().current(), stream), result.train.loss};
}

void expect_same_in_modes(const std::vector<Device>& devices, const std::vector<StepMode>& modes) {
  std::vector<Ended> all;
  for (const StepMode mode : modes) {
    std::vector<std::unique_ptr<Network>> networks = local_networks(2);
    std::vector<Ended> ended(2);
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        Mesh mesh(std::move(networks[rank]));
        try {
          ended[rank] = train_in_mode(mesh, static_cast<int>(rank), devices[rank], mode);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
          mesh.fail(error.what());
        }
      });
    threads.clear();
    all.insert(all.end(), ended.begin(), ended.end());
  }
  for (const Ended& ended : all) EXPECT_EQ(ended, all[0]);
}

TEST(SyncBatchNormOnRanksTest, ModesHaveTheSameBits) {
  expect_same_in_modes(std::vector<Device>(2, Device::cpu()), {StepMode::eager, StepMode::planned});
}

TEST(SyncBatchNormOnGpusTest, IsOneRankWithTheWholeBatch_cuda) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "two GPUs are needed; there are " << cuda_device_count();
  const std::vector<Device> devices = {Device::cuda(0), Device::cuda(1)};
  for (const char* const transport : {"peer", "nccl"}) {
    ::setenv("BANTAM_TRANSPORT", transport, 1);
    for (const std::vector<std::int64_t>& samples : {std::vector<std::int64_t>{4, 4}, {4, 3}}) {
      const std::vector<Ended> ended = train_ranks(devices, samples);
      EXPECT_EQ(ended[0], ended[1]);
      expect_near(ended[0], train_whole(Device::cuda(0), samples[0] + samples[1]));
    }
    expect_same_in_modes(devices, {StepMode::eager, StepMode::planned, StepMode::captured});
  }
  ::unsetenv("BANTAM_TRANSPORT");
}

TEST(SyncBatchNormOnRanksTest, NeedsARankForEachReplica) {
  Runtime runtime({.threads = 1});
  const Graph graph = with_synchronised_norms(testing::small_network());
  try {
    const Training training(runtime, Device::cpu(), graph, {.replicas = 4, .dealt = {2, 2}});
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              "train.sync_batch_norm: batch norms of replicas exchange sums while these run side by side, each on a "
              "rank of its own: train.replicas is 4, but there are 2 ranks; start 4 ranks (--gpus 4 or --ranks 4), or "
              "set train.replicas=2");
  }
  EXPECT_NO_THROW(Training(runtime, Device::cpu(), graph, {})) << "one replica has nobody to talk to";
}

}  // namespace
}  // namespace bantam::sync_batch_norm_test
