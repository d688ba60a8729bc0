// Whole trainings on simulated ranks with faults: every run ends, done or with the right reason on all ranks, and what
// is resumed from rank 0's last checkpoint, on another number of ranks, ends with the bits of the undisturbed run.
// BANTAM_SIMULATED_SEEDS=N runs N seeds; BANTAM_SIMULATED_SEED=S runs seed S alone.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bantam/base/clock.h"
#include "bantam/engine/comm/simulator.h"
#include "bantam/engine/train/trainer.h"
#include "tests/engine/comm/tree_sums.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/shared_source.h"

namespace bantam::simulated_training_test {
namespace {

using testing::MemorySource;
using testing::random_shares;
using testing::SharedSource;

constexpr int kReplicas = 4;

/// A convolution with batch norm, twice, and dropout: all that replicas add up and all random numbers that depend on
/// a sample's place.
Graph network() {
  Graph graph({8, 8, 3});
  for (const char* name : {"first", "second"}) {
    graph.add(name, conv2d({.filters = 4, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
    graph.add(std::string(name) + "_norm", batch_norm({.activation = {Activation::relu}}));
  }
  graph.add(flatten());
  graph.add("drop", dropout({.rate = 0.5f}));
  graph.add("head", dense({.units = 5}));
  return graph;
}

struct Checkpoint {
  TrainerPosition position;
  std::vector<std::byte> state;
};

/// Model and optimizer of one rank, and all their bits.
struct Rank {
  Runtime runtime{{.threads = 1}};
  Model model{runtime, Device::cpu(), network(), {.seed = 2}};
  Optimizer optimizer{model, {.rule = adamw({.weight_decay = 0.0f}), .clip_norm = 0.5f, .ema = EmaOptions{}}};
  StateRegistry registry;

  Rank() {
    model.register_state(registry);
    optimizer.register_state(registry);
  }
  std::vector<std::byte> state() const {
    std::vector<std::byte> all;
    for (const StateEntry& entry : registry.tensors()) {
      const auto* bytes = entry.tensor.as<std::byte>();
      all.insert(all.end(), bytes, bytes + entry.tensor.bytes());
    }
    return all;
  }
  void load(const std::vector<std::byte>& state) {
    std::size_t at = 0;
    for (const StateEntry& entry : registry.tensors()) {
      std::memcpy(entry.tensor.data(), state.data() + at, entry.tensor.bytes());
      at += entry.tensor.bytes();
    }
  }
};

/// Saves after every update.
class Keeper : public Checkpointer {
 public:
  Keeper(const Rank& rank, Checkpoint& last) : rank_(rank), last_(last) {}
  bool due(std::int64_t, std::int64_t) override { return true; }
  void copy() override { copied_ = rank_.state(); }
  void save(const TrainerPosition& position) override { last_ = {position, copied_}; }

 private:
  const Rank& rank_;
  Checkpoint& last_;
  std::vector<std::byte> copied_;
};

/// This rank's part of 2 epochs of 3 updates, from `last` on, where checkpoints go. Returns all bits at the end.
std::vector<std::byte> train(const ReplicaOptions& replicas, Checkpoint& last) {
  Rank rank;
  if (!last.state.empty()) rank.load(last.state);
  TrainingStep step(rank.model, rank.optimizer, {}, replicas);
  SharedSource source({8, 8, 3}, 5, 4 * 12, 4);
  MemorySource validation({8, 8, 3}, 5, 9, 4);
  const TrainerPosition first = last.position;
  Keeper keeper(rank, last);
  Trainer(step, source, &validation, {.epochs = 2, .mode = StepMode::eager, .first = first, .checkpointer = &keeper})
      .run();
  return rank.state();
}

struct Training {
  std::vector<Checkpoint> checkpoints;         // of each rank
  std::vector<std::vector<std::byte>> states;  // of those that ended
  SimulatedRun run;
};

Training simulate(std::uint64_t seed, const std::vector<int>& dealt, const Checkpoint& from, int faults) {
  Training training;
  training.checkpoints.assign(dealt.size(), from);
  training.states.resize(dealt.size());
  SimulationOptions options;
  options.world.most_faults = faults;
  options.world.fault_calls = 4000;
  training.run = run_simulated(seed, static_cast<int>(dealt.size()), options, [&](Communicator& ranks, int number) {
    const auto rank = static_cast<std::size_t>(number);
    training.states[rank] =
        train({.replicas = kReplicas, .dealt = dealt, .rank = number, .ranks = &ranks}, training.checkpoints[rank]);
  });
  return training;
}

std::vector<int> deal(int ranks, std::mt19937_64& random) {
  std::vector<int> dealt;
  for (const ReplicaShare& share : random_shares(kReplicas, ranks, random)) dealt.push_back(share.count);
  return dealt;
}

std::uint64_t setting(const char* name, std::uint64_t usual) {
  const char* value = std::getenv(name);
  return value == nullptr ? usual : std::strtoull(value, nullptr, 10);
}

TEST(SimulatedTraining, AnyNumberOfRanksHasTheSameBits) {
  Checkpoint last;
  const std::vector<std::byte> expected = train({.replicas = kReplicas}, last);
  for (const std::vector<int>& dealt : {std::vector<int>{4}, {3, 1}, {1, 2, 1}, {1, 1, 1, 1}}) {
    const Training training = simulate(dealt.size(), dealt, {}, 0);
    EXPECT_EQ(training.run.wrong(), "");
    for (const auto& state : training.states) EXPECT_TRUE(state == expected) << dealt.size() << " ranks";
  }
}

TEST(SimulatedTraining, EveryRunEndsAndResumesToTheSameBits) {
  const std::uint64_t only = setting("BANTAM_SIMULATED_SEED", 0), seeds = setting("BANTAM_SIMULATED_SEEDS", 100);
  const auto start = std::chrono::steady_clock::now();
  Checkpoint none;
  const std::vector<std::byte> expected = train({.replicas = kReplicas}, none);
  int stopped = 0, from_checkpoint = 0;
  for (std::uint64_t seed = only > 0 ? only : 1; seed <= (only > 0 ? only : seeds); ++seed) {
    SCOPED_TRACE("replay: BANTAM_SIMULATED_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Training training = simulate(seed, deal(2 + static_cast<int>(random() % 3), random), {}, 2);
    ASSERT_EQ(training.run.wrong(), "");
    for (std::size_t rank = 0; rank < training.states.size(); ++rank) {
      if (training.run.ranks[rank].end == SimulatedRank::End::done) {
        ASSERT_TRUE(training.states[rank] == expected);
      }
    }
    if (training.run.ranks[0].end == SimulatedRank::End::done) continue;
    const Checkpoint& last = training.checkpoints[0];
    const Training resumed = simulate(seed, deal(1 + static_cast<int>(random() % 4), random), last, 0);
    ASSERT_EQ(resumed.run.wrong(), "");
    for (const auto& state : resumed.states) ASSERT_TRUE(state == expected);
    ++stopped;
    from_checkpoint += last.state.empty() ? 0 : 1;
  }
  std::printf("%d runs stopped, of which %d had a checkpoint, and resumed; %.1f s\n", stopped, from_checkpoint,
              seconds_since(start));
  if (only == 0) {
    EXPECT_GT(from_checkpoint, static_cast<int>(seeds / 10));
  }
}

}  // namespace
}  // namespace bantam::simulated_training_test
