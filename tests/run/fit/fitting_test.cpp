// `batch: {size: auto}`: the number that plans give is the largest that truly runs, and goes on running.
#include "bantam/run/fit/fitting.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/limits/process_limit.h"
#include "bantam/run/fit/decisions.h"
#include "bantam/run/fit/run_plan.h"

namespace bantam::run::fitting_test {
namespace {

class FittingTest : public ::testing::Test {
 protected:
  FittingTest()
      : path_(std::filesystem::temp_directory_path() / ("bantam-fitting-" + std::to_string(getpid()) + ".yaml")) {}
  ~FittingTest() override { std::filesystem::remove(path_); }

  /// A small network on small data: an update takes a millisecond or two.
  RunConfig read(const std::vector<std::string>& overrides = {}) const {
    std::ofstream(path_) << R"(device: cpu
data:
  format: generated
  train_samples: 400
  test_samples: 90
  pipeline:
    - shuffle: {}
    - normalize: {scale: 0.0039}
    - batch: {size: auto}
    - prefetch: {depth: auto, workers: 0}
model:
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 4, kernel: 3, stride: 2}
    - block: {name: middle, body: [conv2d: {filters: 6, kernel: 3, stride: 2}, relu]}
    - max_pool: {size: 2}
    - dropout: {rate: 0.2}
    - flatten
    - dense: {units: 10}
train: {accumulate: 2, optimizer: sgd}
)";
    return read_run_config(path_, overrides);
  }

  /// Blocks of convolutions, which keep more than they give.
  std::string deep() const {
    std::string layers = "conv2d: {filters: 8, kernel: 3, stride: 2, padding: same}";
    for (int block = 1; block <= 4; ++block)
      layers += fmt::format(
          ", block: {{name: b{}, body: [conv2d: {{filters: 8, kernel: 3, padding: same}}, relu, conv2d: {{filters: 8, "
          "kernel: 3, padding: same}}, relu]}}",
          block);
    return "model.layers=[" + layers + ", global_average_pool, dense: {units: 10}]";
  }

  static std::int64_t solve_batch(const RunConfig& config, std::uint64_t bytes) {
    return choose_batch(config, bytes, bytes > 0).batch;
  }
  static RunConfig decided(const RunConfig& config, DecisionLog& log) {
    return decide(config, measured_target(config), for_step | for_run | for_rank, log);
  }

  /// Trains for real until `updates` are done; whether memory sufficed.
  static bool runs(const RunConfig& config, std::int64_t batch, std::uint64_t limit, std::int64_t updates) {
    const RunConfig run = variant(config, batch, config.recompute);
    const RunPlan plan = plan_run(run);
    Runtime runtime({.threads = 1, .limits = {{"cpu", limit}}});
    try {
      (void)runtime.allocator(Device::cpu()).reserve_pool(plan.pool_bytes);
      const OpenedData sources = open_data(runtime, *run.data, Device::cpu(), config.seed);
      Model model(runtime, Device::cpu(), config.model.graph, {.seed = config.seed, .recompute = config.recompute});
      Optimizer optimizer(model, config.train.optimizer);
      TrainingStep step(model, optimizer, config.train.loss);
      step.prepare({}, plan.placements);
      const std::int64_t accumulate = config.train.accumulate;
      const std::int64_t an_epoch = (sources.train->batches_per_epoch() + accumulate - 1) / accumulate;
      Trainer trainer(
          step, *sources.train, sources.validation.get(),
          {.epochs = std::max<std::int64_t>(2, (updates + an_epoch - 1) / an_epoch), .accumulate = accumulate});
      EXPECT_GE(trainer.run().updates, updates);
    } catch (const OutOfMemory&) {
      return false;
    }
    return true;
  }
  std::filesystem::path path_;
};

TEST_F(FittingTest, AutoIsWithinTwoPerCentOfTheLargestThatRuns) {
  const RunConfig config = read({"data.pipeline.batch.multiple_of=1"});
  for (const std::uint64_t limit : {std::uint64_t{5} << 20, std::uint64_t{7} << 20}) {
    const std::int64_t solved = solve_batch(config, limit);
    ASSERT_GT(solved, 20);
    ASSERT_LT(solved, 400);
    std::int64_t largest = 0;  // by trial of every size around
    for (std::int64_t batch = solved * 8 / 10; batch <= std::min<std::int64_t>(400, solved * 14 / 10); ++batch)
      if (runs(config, batch, limit, 1)) largest = batch;
    EXPECT_GE(static_cast<double>(solved), 0.98 * static_cast<double>(largest)) << "of " << limit;
    EXPECT_LE(solved, largest);
  }
}

TEST_F(FittingTest, AutoRunsAThousandUpdates) {
  const RunConfig config = read();
  const std::uint64_t limit = 5u << 20;
  EXPECT_TRUE(runs(config, solve_batch(config, limit), limit, 1000));
}

TEST_F(FittingTest, BoundsOfAutoHold) {
  const RunConfig bounded = read({"data.pipeline.batch.max=50", "data.pipeline.batch.multiple_of=8"});
  EXPECT_EQ(solve_batch(bounded, 1u << 30), 48);
  EXPECT_EQ(solve_batch(read(), 1u << 30), 400) << "no larger than the data set";
  EXPECT_EQ(solve_batch(read({"data.pipeline.batch.multiple_of=16"}), 5u << 20) % 16, 0);
  EXPECT_THROW((void)solve_batch(read(), 1u << 20), OutOfMemory) << "the data alone take more";
  EXPECT_THROW((void)read({"data.pipeline.batch={size: auto, max: 4, multiple_of: 8}"}), ConfigError);
}

TEST_F(FittingTest, LessMemoryNeverHasALargerBatchAndBatchesAreMultiplesOfEight) {
  const std::vector<std::string> networks = {
      "model.name=plain", deep(),
      "model.layers=[conv2d: {filters: 4, kernel: 3, stride: 2}, batch_norm, relu, separable_conv2d: {filters: 8, "
      "kernel: 3}, global_average_pool, dense: {units: 10}]"};
  for (const std::string& network : networks)
    for (const char* cache : {"off", "ram", "auto"}) {
      std::int64_t before = 0, least = 0;
      for (std::uint64_t megabytes = 2; megabytes <= 26; megabytes += 2) {
        const RunConfig config = read({network, std::string("data.pipeline.0={cache: ") + cache + "}",
                                       fmt::format("memory.budget={}MiB", megabytes)});
        std::int64_t batch = 0;
        try {
          batch = solve_batch(config, bytes_to_fit(config));
        } catch (const OutOfMemory&) {  // no batch fits
        }
        EXPECT_GE(batch, before) << network << " with " << cache << " in " << megabytes << " MiB";
        EXPECT_TRUE(batch < 8 || batch % 8 == 0) << batch;
        if (batch > 0) {
          EXPECT_TRUE(run_fits(variant(config, batch, config.recompute), megabytes << 20));
        }
        if (least == 0) least = batch;
        before = batch;
      }
      EXPECT_GT(before, least) << network;
    }
}

TEST_F(FittingTest, WhatOtherSizesWouldComeToIsPrinted) {
  const RunConfig config = read();
  const std::string text = to_text(choose_batch(config, 5u << 20, true), 5u << 20);
  EXPECT_NE(text.find("the largest that fits 5.00 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("by plan half of it has -"), std::string::npos) << text;
  EXPECT_NE(text.find("larger ones at most +"), std::string::npos) << text;
}

TEST_F(FittingTest, AutoNeedsADeviceOrANumber) {
  const RunConfig config = read({"device=cuda:63"});
  EXPECT_THROW((void)free_pool_bytes(config), ConfigError);
  EXPECT_GT(solve_batch(config, 16u << 20), 0);
}

TEST_F(FittingTest, DecisionsWriteTheNumbersDown) {
  const RunConfig open = read({"memory.limits={cpu: 5MiB}"});
  DecisionLog log, again;
  const RunConfig closed = decided(open, log);
  EXPECT_FALSE(closed.recompute_given);
  EXPECT_EQ(log.messages.size(), 1u);
  EXPECT_FALSE(closed.data->pipeline.batch_size_is_auto);
  EXPECT_EQ(closed.data->pipeline.batch_size, solve_batch(open, 5u << 20));
  const RunConfig twice = decided(closed, again);
  EXPECT_EQ(twice.document.resolved_yaml(), closed.document.resolved_yaml()) << "values that are decided stay";
  EXPECT_TRUE(again.messages.empty());
}

TEST_F(FittingTest, TheResolvedTextIsThatOfTheSameOverrides) {
  const RunConfig open = read({"memory.limits={cpu: 5MiB}"});
  DecisionLog log;
  const RunConfig closed = decided(open, log);
  const RunConfig typed = read({"memory.limits={cpu: 5MiB}", "device=cpu", "precision=float32",
                                fmt::format("data.pipeline.batch.size={}", closed.data->pipeline.batch_size)});
  EXPECT_EQ(closed.document.resolved_yaml(), typed.document.resolved_yaml());
  EXPECT_NE(open.document.resolved_yaml(), closed.document.resolved_yaml()) << "the open one stays open";
}

TEST_F(FittingTest, ABudgetChoosesWhatIsRunAgain) {
  const std::vector<std::string> fixed = {"data.pipeline.batch.size=200", "data.pipeline.prefetch.depth=1", deep()};
  const auto with = [&](const std::string& key, const std::string& more) {
    return read({fixed[0], fixed[1], fixed[2], key, more});
  };
  DecisionLog log;
  const std::uint64_t all = plan_run(read(fixed)).pool_bytes;
  EXPECT_FALSE(decided(with(fmt::format("memory.budget={}", 2 * all), "seed=42"), log).recompute_given);
  bool chosen = false;
  for (std::uint64_t budget = all; budget > all / 2 && !chosen; budget -= all / 40) {
    const std::string key = fmt::format("memory.budget={}", budget);
    const RunConfig run = decided(with(key, "seed=42"), log);
    if (!run.recompute_given) continue;
    chosen = true;
    EXPECT_NE(to_string(run.recompute), "none");
    EXPECT_TRUE(runs(run, 200, budget, 4)) << to_string(run.recompute);
    const RunConfig again = with(key, "recompute=" + to_yaml(run.recompute));
    EXPECT_EQ(to_string(again.recompute), to_string(run.recompute)) << "the written value is read back";
    EXPECT_EQ(to_string(decided(with(key, "recompute=none"), log).recompute), "none") << "what the user says stands";
  }
  EXPECT_TRUE(chosen);
}

TEST_F(FittingTest, TheSmallerOfBudgetAndLimitCounts) {
  EXPECT_EQ(bytes_to_fit(read()), 0u);
  EXPECT_EQ(bytes_to_fit(read({"memory.budget=2MiB"})), 2u << 20);
  EXPECT_EQ(bytes_to_fit(read({"memory={budget: 2MiB, limits: {cpu: 1MiB}}"})), 1u << 20);
  EXPECT_EQ(bytes_to_fit(read({"memory={budget: 2MiB, limits: {\"cuda:0\": 1MiB}}"})), 2u << 20);
}

TEST_F(FittingTest, SharesOfTheDeviceAreNotItsOwn) {
  EXPECT_EQ(bytes_to_fit(read({"memory={limits: {cpu: 40MiB}, logical: {cpu: [18MiB, 2MiB]}}"})), 20u << 20);
  EXPECT_EQ(bytes_to_fit(read({"device=cpu/1", "memory={limits: {cpu: 40MiB}, logical: {cpu: [18MiB, 2MiB]}}"})),
            2u << 20);
  EXPECT_EQ(bytes_to_fit(read({"memory={logical: {cpu: [1MiB]}}"})),
            device_info(Device::cpu()).total_bytes - (1u << 20))
      << "without a limit shares are cut from all there is";
  // What is solved is what a runtime of the configuration grants.
  const RunConfig config = read({"memory={limits: {cpu: 9MiB}, logical: {cpu: [4MiB]}}"});
  const RunConfig solved = variant(config, solve_batch(config, bytes_to_fit(config)), {});
  EXPECT_NO_THROW(make_runtime(solved, 1)->require_pool(Device::cpu(), plan_run(solved).pool_bytes));
}

TEST_F(FittingTest, WhatALimitLeavesByMeasurementIsWhatAProcessLimitGrants) {
  constexpr std::uint64_t kLimit = 800u << 20, kOverhead = (531u << 20) + 4096;
  ProcessLimit limit({.name = "cuda:0",
                      .limit_bytes = kLimit,
                      .reserve_bytes = kKernelReserve,
                      .late_reserve_bytes = kLateReserve,
                      .process_bytes = [](std::uint64_t) { return kOverhead; }});
  limit.note_overhead("CUDA context");
  // As measured_target has it: the overhead before any kernel, and the reserve that holds until they are loaded.
  PlanTarget target{.counts = true, .reserve_bytes = kKernelReserve};
  target.profile.overhead = limit.overhead();
  const std::uint64_t pool = pool_bytes_under(target, kLimit);
  EXPECT_EQ(pool, kLimit - kOverhead - kKernelReserve);
  EXPECT_NO_THROW(limit.require(Device::kWhole, pool));
  EXPECT_THROW(limit.require(Device::kWhole, pool + 1), OutOfMemory) << "and not a byte is left unused";
  target.counts = false;
  EXPECT_EQ(pool_bytes_under(target, kLimit), kLimit) << "where only pools count";
}

TEST_F(FittingTest, DevicesThatAreNotHereGoByTheirProfile) {
  const RunConfig config = read({"device=cuda:63", "memory.limits={\"cuda:63\": 4GiB}"});
  const PlanTarget measured = measured_target(config), profiled = plan_target(config, std::nullopt);
  EXPECT_EQ(measured.profile.overhead, profiled.profile.overhead);
  EXPECT_EQ(bytes_besides_pool(measured), total_bytes(profiled.profile.overhead) + kLateReserve);
  EXPECT_EQ(bytes_to_fit(config), (std::uint64_t{4} << 30) - bytes_besides_pool(profiled));
}

TEST_F(FittingTest, PoliciesAsTheyAreWritten) {
  const auto named = [](std::vector<std::string> names, Derive derive) {
    return RecomputeOptions{RecomputeOptions::Kind::named, std::move(names), derive};
  };
  EXPECT_EQ(to_yaml({}), "none");
  EXPECT_EQ(to_yaml(named({"a", "b..c"}, Derive::cheap)), "[cheap, \"a\", \"b..c\"]");
  EXPECT_EQ(to_yaml({.derive = Derive::inner}), "[inner]");
  EXPECT_EQ(to_yaml({RecomputeOptions::Kind::named, {"a"}, Derive::inner, true}), "[inner, whole, \"a\"]");
  EXPECT_EQ(wrapped(named({"alpha", "beta", "gamma"}, Derive::none), 12, "  "), "alpha, beta,\n  gamma");
}

TEST_F(FittingTest, RatesAreTheNamedDevices) {
  RunConfig config = read({"data.pipeline.batch.size=16"});
  const DeviceRates own = rates_of(config, config.precision);
  EXPECT_EQ(own.bytes_per_s, typical_rates(config.device, config.precision).bytes_per_s);
  config.planned_for = DeviceProfile{.name = "slow", .copy_bytes_per_s = 1e12, .float32_flops_per_s = 1e9};
  EXPECT_EQ(rates_of(config, config.precision).bytes_per_s, 1e12);
  EXPECT_EQ(rates_of(config, config.precision).flops_per_s, 1e9);
}

}  // namespace
}  // namespace bantam::run::fitting_test
