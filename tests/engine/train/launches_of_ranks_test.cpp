// Launches of several ranks: as many updates on each, whether its device makes the batches or the host does, with
// reads, looks, evaluations and ends at the same updates. On CPUs, where a launch runs update by update.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/engine/train/device_batches.h"
#include "bantam/engine/train/not_finite.h"
#include "bantam/engine/train/trainer.h"
#include "tests/engine/comm/on_ranks.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/shared_source.h"

namespace bantam::launches_of_ranks_test {
namespace {

using testing::MemorySource;
using testing::on_ranks;

constexpr int kReplicas = 4;
constexpr std::int64_t kUpdates = 11;  // of an epoch; the last one has a short batch

/// Batches in memory, of which a rank gets its share; where `own`, made as a device makes them.
class Shares : public MemorySource, public DeviceBatches {
 public:
  explicit Shares(bool own, std::int64_t samples = kUpdates * kReplicas * 4 - 2)
      : MemorySource({8, 8, 3}, 5, samples, 4), own_(own) {}
  void set_share(std::int64_t first, std::int64_t count, std::int64_t of) override {
    first_ = first, count_ = count, of_ = of;
  }
  void start(std::int64_t epoch, std::int64_t first) override {
    epoch_ = epoch;
    next_ = first / of_ * count_;
  }
  bool next(const Context& context, Batch& batch) override {
    if (place(next_) >= batches_per_epoch()) return false;
    batch = batch_at(context, place(next_++));
    return true;
  }
  DeviceBatches* device_batches(const Context&) override { return own_ ? this : nullptr; }

  std::int64_t left() const override {
    std::int64_t left = 0;
    for (std::int64_t n = next_; place(n) < batches_per_epoch() && size_of(place(n)) == batch_size(); ++n) ++left;
    return left;
  }
  std::int64_t most_at_once() const override { return 32; }
  Batch make(const Context& context, std::int64_t i, std::int64_t) override {
    return batch_at(context, place(next_ + i));
  }
  void advance(std::int64_t count) override { next_ += count; }

 private:
  std::int64_t place(std::int64_t n) const { return n / count_ * of_ + first_ + n % count_; }
  Batch batch_at(const Context& context, std::int64_t index) {
    Batch batch;
    MemorySource::start(epoch_, index);
    EXPECT_TRUE(MemorySource::next(context, batch));
    return batch;
  }

  bool own_;
  std::int64_t first_ = 0, count_ = 1, of_ = 1, epoch_ = 0, next_ = 0;
};

/// What a rank is told, and when.
struct Told : Callback {
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override {
    read.emplace_back(event.epoch, event.update);
    for (const UpdateReport& report : event.values) rates.push_back(report.learning_rate);
  }
  void on_evaluated(const EvaluatedEvent& event) override { evaluated.emplace_back(event.epoch, event.update); }
  std::vector<std::pair<std::int64_t, std::int64_t>> read, evaluated;
  std::vector<std::int64_t> looked;
  std::vector<float> rates;
};

struct Trained {
  std::vector<float> weights;
  Told told;
  TrainResult result;
};

struct Settings {
  int launch = 3;
  std::int64_t look_every = 0, diverges_at = 0;
};

Trained train(const ReplicaOptions& replicas, bool own, const Settings& settings) {
  Runtime runtime{{.threads = 1}};
  Model model(runtime, Device::cpu(), testing::small_network(), {.seed = 2});
  Optimizer optimizer(model, {.rule = adamw({.weight_decay = 0.0f})});
  TrainingStep step(model, optimizer, {}, replicas);
  Shares source(own);
  MemorySource validation({8, 8, 3}, 5, 9, 4);
  Trained trained;
  TrainerOptions options{.epochs = 2,
                         .evaluate_every = Duration::updates(5),
                         .mode = StepMode::planned,
                         .updates_a_launch = settings.launch,
                         .schedules = UpdateSchedules{.learning_rate =
                                                          [&](std::int64_t update) {
                                                            return update == settings.diverges_at && update > 0
                                                                       ? 1e30f
                                                                       : 0.001f * static_cast<float>(1 + update % 7);
                                                          }},
                         .look_every = settings.look_every};
  if (settings.look_every > 0) options.look = [&](std::int64_t update) { trained.told.looked.push_back(update); };
  if (replicas.ranks != nullptr) options.agree = [](bool stops) { return stops; };
  Trainer trainer(step, source, &validation, options);
  trainer.add(trained.told);
  trained.result = trainer.run();
  const auto* weights = model.parameters().master().as<float>();
  trained.weights.assign(weights, weights + model.parameters().master().elements());
  return trained;
}

/// By rank; `own`: which of them have a device that makes its batches.
std::vector<Trained> train_on(const std::vector<int>& dealt, const std::vector<bool>& own, const Settings& settings) {
  std::vector<Trained> trained(dealt.size());
  EXPECT_EQ(on_ranks(static_cast<int>(dealt.size()),
                     [&](Communicator& link, int number) {
                       const auto rank = static_cast<std::size_t>(number);
                       trained[rank] = train({.replicas = kReplicas, .dealt = dealt, .rank = number, .ranks = &link},
                                             own[rank], settings);
                     }),
            testing::nothing_thrown(static_cast<int>(dealt.size())));
  return trained;
}

TEST(LaunchesOfRanks, HaveTheBitsOfOneRank) {
  for (const Settings& settings :
       {Settings{.launch = 1}, Settings{.launch = 3}, Settings{.launch = 4, .look_every = 3}}) {
    const Trained alone = train({.replicas = kReplicas}, true, settings);
    for (const std::vector<bool>& own : {std::vector<bool>{true, true}, {true, false}, {false, false}})
      for (const std::vector<int>& dealt : {std::vector<int>{2, 2}, {3, 1}})
        for (const Trained& rank : train_on(dealt, own, settings)) {
          EXPECT_EQ(rank.weights, alone.weights);
          EXPECT_EQ(rank.told.rates, alone.told.rates) << "each update has its own";
          EXPECT_EQ(rank.told.evaluated, alone.told.evaluated);
          EXPECT_EQ(rank.told.looked, alone.told.looked);
          EXPECT_EQ(rank.result.validation.loss, alone.result.validation.loss);
          EXPECT_EQ(rank.result.updates, 2 * kUpdates);
        }
  }
}

// After the first launch of an epoch (of 2), the last one, three launches after the last such read, and, beside these,
// before each evaluation.
TEST(LaunchesOfRanks, ReadAfterTheSameUpdates) {
  const std::vector<Trained> ranks = train_on({1, 3}, {true, false}, {.launch = 2});
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected = {{0, 2}, {0, 5}, {0, 9}, {0, 10}, {0, 11},
                                                                       {1, 2}, {1, 4}, {1, 8}, {1, 9},  {1, 11}};
  EXPECT_EQ(ranks[0].told.read, expected);
  EXPECT_EQ(ranks[1].told.read, expected);
}

TEST(LaunchesOfRanks, FindWhatIsNotFiniteTogether) {
  const std::vector<std::string> thrown = on_ranks(2, [&](Communicator& link, int rank) {
    const ReplicaOptions replicas{.replicas = kReplicas, .dealt = {2, 2}, .rank = rank, .ranks = &link};
    (void)train(replicas, rank == 0, {.launch = 3, .diverges_at = 7});
  });
  // A rank that is still at the exchange may hear it from the other.
  for (const std::string& error : thrown)
    EXPECT_NE(error.find("the gradients of update 9 of epoch 1 are not finite"), std::string::npos) << error;
}

}  // namespace
}  // namespace bantam::launches_of_ranks_test
