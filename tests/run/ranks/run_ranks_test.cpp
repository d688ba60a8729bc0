// What ranks settle together: the state of rank 0 in all, and which of them differ.
#include "bantam/run/ranks/run_ranks.h"

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/engine/comm/local_network.h"
#include "bantam/engine/comm/mesh.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/engine/step/training_session.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::run_ranks_test {
namespace {

/// Calls `work` on a thread for each rank; the messages of what they throw, by rank.
std::vector<std::string> on_ranks(int count, const std::function<void(const RunRanks&)>& work) {
  std::vector<std::unique_ptr<Network>> networks = local_networks(count);
  std::vector<std::string> errors(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      Mesh mesh(std::move(networks[static_cast<std::size_t>(rank)]));
      try {
        work({.link = &mesh});
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

Graph small_graph() {
  Graph graph({4});
  graph.add(dense({.units = 3}));
  return graph;
}

/// A model's state, a counter and numbers on one rank.
struct State {
  explicit State(std::uint64_t seed, int rank)
      : runtime({.threads = 1}),
        session(runtime, Device::cpu(), small_graph(), {.model = {.seed = seed}, .optimizer = {}, .loss = {}}),
        count(rank),
        numbers(static_cast<std::size_t>(rank), 0.5) {
    session.model().register_state(registry);
    session.optimizer().register_state(registry);
    registry.add_counter(
        "count", [this] { return count; }, [this](std::int64_t value) { count = value; });
    registry.add_numbers(
        "numbers", [this] { return numbers; }, [this](const std::vector<double>& value) { numbers = value; });
  }
  Stream stream() { return runtime.stream(Device::cpu()); }
  Runtime runtime;
  TrainingSession session;
  StateRegistry registry;
  std::int64_t count;
  std::vector<double> numbers;
};

TEST(RunRanks, OneRankExchangesNothing) {
  const RunRanks alone;
  EXPECT_EQ(alone.size(), 1);
  EXPECT_TRUE(alone.writes());
  EXPECT_EQ(text_of_first(alone, "text"), "text");
  EXPECT_TRUE(any_rank(alone, true));
  EXPECT_EQ(first_number(alone, 15), 15);
}

TEST(RunRanks, HearOfTheFirstThatSaysSo) {
  for (const std::string& error : on_ranks(4, [](const RunRanks& ranks) {
         EXPECT_EQ(text_of_first(ranks, "of " + std::to_string(ranks.rank())), "of 0");
         EXPECT_EQ(first_number(ranks, ranks.rank() >= 2 ? ranks.rank() : 0), 2);
         EXPECT_FALSE(any_rank(ranks, false));
         EXPECT_TRUE(any_rank(ranks, ranks.rank() == 3));
       }))
    EXPECT_EQ(error, "");
}

TEST(RunRanks, AllBeginWithTheStateOfTheFirst) {
  std::vector<std::string> digests(3);
  const auto errors = on_ranks(3, [&](const RunRanks& ranks) {
    State state(10 + static_cast<std::uint64_t>(ranks.rank()), ranks.rank() + 2);
    const std::string before = state_digest(state.registry, state.stream());
    broadcast_state(ranks, state.registry, state.stream());
    digests[static_cast<std::size_t>(ranks.rank())] = state_digest(state.registry, state.stream());
    EXPECT_EQ(before == digests[static_cast<std::size_t>(ranks.rank())], ranks.rank() == 0) << "seeds differ";
    EXPECT_EQ(state.count, 2);
    EXPECT_EQ(state.numbers, (std::vector<double>{0.5, 0.5}));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(digests[1], digests[0]);
  EXPECT_EQ(digests[2], digests[0]);
}

TEST(RunRanks, NameTheRankWhoseStateDiffers) {
  const auto errors = on_ranks(3, [](const RunRanks& ranks) {
    State state(7, 1);
    StateComparison comparison(ranks, state.registry, state.stream());
    comparison.on_epoch_end({.epoch = 0});
    auto* const weight = static_cast<float*>(state.registry.tensors().front().tensor.data());
    if (ranks.rank() == 2) *weight += 1.0f;
    comparison.on_epoch_end({.epoch = 1});
  });
  for (const std::string& error : errors)
    EXPECT_EQ(error,
              "the state of rank 2 differs from the other ranks' after epoch 2: a processor or memory that computes "
              "wrongly, or unlike libraries or instruction sets; go on from a checkpoint before it");
}

TEST(RunRanks, CompareAsSeldomAsAskedAndAtTheEnd) {
  const auto errors = on_ranks(2, [](const RunRanks& ranks) {
    State state(7, 1);
    StateComparison comparison(ranks, state.registry, state.stream(), 3600);
    auto* const weight = static_cast<float*>(state.registry.tensors().front().tensor.data());
    if (ranks.rank() == 1) *weight += 1.0f;
    comparison.on_epoch_end({.epoch = 0});
    comparison.on_epoch_end({.epoch = 1});
    comparison.on_epoch_end({.epoch = 2, .last = true});
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("rank 1 differs"), std::string::npos) << error;
  for (const std::string& error : errors) EXPECT_NE(error.find("after epoch 3"), std::string::npos) << error;
}

TEST(RunRanks, AreOddWhereMostSaySomethingElse) {
  const auto odd = [](const std::vector<std::string>& digests) { return odd_ranks(digests); };
  EXPECT_EQ(odd({"a", "a", "a"}), std::vector<int>());
  EXPECT_EQ(odd({"b", "a", "a"}), std::vector<int>({0}));
  EXPECT_EQ(odd({"a", "b"}), std::vector<int>({1})) << "no majority: rank 0 counts";
  EXPECT_EQ(odd({"a", "b", "c", "a"}), std::vector<int>({1, 2}));
}

TEST(RunRanks, RefuseTextsThatDiffer) {
  const auto errors = on_ranks(2, [](const RunRanks& ranks) {
    require_same(ranks, "data", ranks.rank() == 0 ? "image: 8\nsamples: 10\n" : "image: 8\nsamples: 9\n");
  });
  for (const std::string& error : errors)
    EXPECT_EQ(error, "rank 1 has data unlike rank 0's:\n  rank 0: samples: 10\n  rank 1: samples: 9");
}

}  // namespace
}  // namespace bantam::run::run_ranks_test
