// Sweeps as a program trains them: the same bits as each run alone, failures that stop nothing, going on, and what the
// table is made of.
#include "bantam/run/sweep/train_sweep.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/images/encode.h"
#include "bantam/run/sweep/sweep_summary.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::train_sweep_test {
namespace {

namespace fs = std::filesystem;

class TrainSweep : public RunTest {
 protected:
  /// Two settings of tiny.yaml, in one epoch each.
  static SweepPlan plan(std::vector<std::string> rates = {"0.01", "0.1"}, std::int64_t repeat = 1) {
    return {.config = tiny().document.resolved_yaml(),
            .config_path = "tiny.yaml",
            .overrides = {"train.epochs=1"},
            .axes = {{"train.optimizer.sgd.learning_rate", std::move(rates)}},
            .repeat = repeat};
  }
  std::vector<nlohmann::json> log_of(const SweepRun& run) const {
    return lines_without_clock(read_file(run.folder / "metrics.jsonl"));
  }
};

struct Heard : SweepObserver {
  void on_ended_before(std::size_t index) override { before.push_back(index); }
  RunListeners on_begin(std::size_t index, const RunConfig&) override {
    begun.push_back(index);
    return {};
  }
  void on_end(std::size_t index, const Outcome& outcome) override {
    ended.push_back(index);
    losses.push_back(outcome.result.validation.loss);
  }
  void on_failed(std::size_t index, const std::exception& error) override {
    failed.push_back(index);
    diverged = dynamic_cast<const NotFiniteError*>(&error) != nullptr;
  }
  std::vector<std::size_t> before, begun, ended, failed;
  std::vector<double> losses;
  bool diverged = false;
};

using Indices = std::vector<std::size_t>;

TEST_F(TrainSweep, TrainsEachRunAsItTrainsAlone) {
  const Sweep sweep = Sweep::create(plan({"0.01", "0.1"}, 2), path("s"), "tiny");
  ASSERT_EQ(sweep.runs().size(), 4u);
  EXPECT_EQ(sweep.text_of(sweep.runs()[1]), "learning_rate=0.1, seed=7");
  EXPECT_EQ(sweep.text_of(sweep.runs()[2]), "learning_rate=0.01, seed=8");
  EXPECT_EQ(sweep.runs()[2].folder.filename(), "1-learning_rate=0.01-seed=8");
  Heard heard;
  const SweepOutcome outcome = train_sweep(sweep, {.threads = 1, .observer = &heard});
  EXPECT_FALSE(outcome.stopped);
  EXPECT_TRUE(outcome.failures.empty());
  EXPECT_EQ(heard.ended, (Indices{0, 1, 2, 3}));
  const Outcome alone = train(tiny({"train.epochs=1", "train.optimizer.sgd.learning_rate=0.1", "seed=8"}),
                              {.threads = 1, .folder = path("a")});
  EXPECT_EQ(alone.result.validation.loss, heard.losses[3]);
  EXPECT_EQ(lines_without_clock(read_file(path("a") / "metrics.jsonl")), log_of(sweep.runs()[3]));
}

TEST_F(TrainSweep, SummaryHasMeansAndDeviationsTheBestSettingFirst) {
  const Sweep sweep = Sweep::create(plan({"1e-6", "0.1"}, 3), path("s"), "tiny");
  Heard heard;
  (void)train_sweep(sweep, {.threads = 1, .observer = &heard});
  const SweepSummary summary = summary_of(sweep);
  EXPECT_EQ(summary.watched, "validation_accuracy");
  EXPECT_TRUE(summary.metric.larger);
  ASSERT_EQ(summary.settings.size(), 2u);
  for (const SettingSummary& setting : summary.settings) {
    EXPECT_EQ(setting.ended, 3);
    double mean = 0, squares = 0;
    std::set<double> losses;
    for (std::size_t i = setting.setting; i < heard.losses.size(); i += 2) losses.insert(heard.losses[i]);
    ASSERT_EQ(losses.size(), 3u) << "seeds differ";
    for (const double loss : losses) mean += loss / 3;
    for (const double loss : losses) squares += (loss - mean) * (loss - mean);
    const Spread& spread = setting.values.at("validation_loss");
    EXPECT_NEAR(spread.mean, mean, 1e-15 * mean * 4) << "three additions";
    ASSERT_TRUE(spread.deviation.has_value());
    EXPECT_NEAR(*spread.deviation, std::sqrt(squares / 2), 1e-12);
    EXPECT_EQ(spread.least, *losses.begin());
    EXPECT_EQ(spread.most, *losses.rbegin());
  }
  EXPECT_GE(summary.settings[0].values.at(summary.watched).mean, summary.settings[1].values.at(summary.watched).mean);
}

TEST_F(TrainSweep, SummaryDoesNotNeedTheData) {
  SweepPlan of_files = plan({"0.1"});
  fs::create_directories(path("images/a"));
  fs::create_directories(path("images/b"));
  Image image;
  image.reshape({8, 8}, 3);
  for (const char* name : {"images/a/1.png", "images/a/2.png", "images/b/1.png", "images/b/2.png"})
    write_file_atomically(path(name), encode_png(image));
  of_files.overrides = {
      "train.epochs=1",
      fmt::format("data={{format: image_folder, path: '{}', split: 0.5, pipeline: [resize: {{size: [8, 8]}}, "
                  "normalize: {{scale: 0.01}}, batch: {{size: 2}}]}}",
                  path("images").string()),
      "model={input: [8, 8, 3], layers: [flatten, dense: {units: 2}]}"};
  const Sweep sweep = Sweep::create(of_files, path("s"), "tiny");
  (void)train_sweep(sweep, {.threads = 1});
  fs::remove_all(path("images"));
  EXPECT_EQ(summary_of(sweep).settings.at(0).ended, 1);
}

TEST_F(TrainSweep, LossIsBetterWhereItIsSmaller) {
  SweepPlan by_loss = plan({"1e-6", "0.1"});
  by_loss.overrides.push_back("train.metrics=[]");
  const Sweep sweep = Sweep::create(by_loss, path("s"), "tiny");
  (void)train_sweep(sweep, {.threads = 1});
  const SweepSummary summary = summary_of(sweep);
  EXPECT_EQ(summary.watched, "validation_loss");
  EXPECT_FALSE(summary.metric.larger);
  EXPECT_LT(summary.settings[0].values.at("validation_loss").mean,
            summary.settings[1].values.at("validation_loss").mean);
  EXPECT_FALSE(summary.settings[0].values.at("validation_loss").deviation.has_value()) << "of one run";
}

TEST_F(TrainSweep, ComparesTheWeightsThatARunKeeps) {
  SweepPlan best = plan({"0.01"});
  best.overrides = {"train.epochs=2", "checkpoint.best={metric: loss, mode: min}"};
  const Sweep sweep = Sweep::create(best, path("best"), "tiny");
  (void)train_sweep(sweep, {.threads = 1});
  const SweepSummary of_best = summary_of(sweep);
  EXPECT_EQ(of_best.watched, "best_validation_loss");
  EXPECT_LE(of_best.results[0].values.at("best_validation_loss"), of_best.results[0].values.at("validation_loss"));
  SweepPlan none = plan({"0.01"});
  none.overrides.push_back("train.evaluate=false");
  const Sweep blind = Sweep::create(none, path("blind"), "tiny");
  (void)train_sweep(blind, {.threads = 1});
  const SweepSummary of_training = summary_of(blind);
  EXPECT_EQ(of_training.watched, "train_accuracy");
  EXPECT_TRUE(of_training.settings[0].values.contains("train_accuracy"));
}

/// Logs call it binary_accuracy.
TEST_F(TrainSweep, ComparesTheAccuracyOfBinaryDecisions) {
  SweepPlan binary = plan();
  binary.config = tiny({"data.labels=soft", "train.loss=binary_cross_entropy", "checkpoint.best={metric: accuracy}"})
                      .document.resolved_yaml();
  const Sweep sweep = Sweep::create(binary, path("s"), "tiny");
  (void)train_sweep(sweep, {.threads = 1});
  const SweepSummary summary = summary_of(sweep);
  EXPECT_EQ(summary.watched, "best_validation_accuracy");
  for (const SettingSummary& setting : summary.settings)
    for (const char* name : {"best_validation_accuracy", "validation_accuracy", "train_accuracy"})
      EXPECT_TRUE(setting.values.contains(name)) << name;
}

TEST_F(TrainSweep, AFailedRunDoesNotStopTheOthers) {
  const Sweep sweep = Sweep::create(plan({"1e30", "0.1"}), path("s"), "tiny");
  Heard heard;
  const SweepOutcome outcome = train_sweep(sweep, {.threads = 1, .observer = &heard});
  EXPECT_FALSE(outcome.stopped);
  EXPECT_EQ(heard.failed, Indices{0});
  EXPECT_TRUE(heard.diverged);
  EXPECT_EQ(heard.ended, Indices{1});
  ASSERT_TRUE(outcome.failures.contains(0));
  const SweepSummary summary = summary_of(sweep, outcome.failures);
  EXPECT_EQ(summary.results[0].state, "failed");
  EXPECT_EQ(summary.results[0].reason, outcome.failures.at(0));
  EXPECT_FALSE(summary.results[0].ended);
  EXPECT_EQ(summary.settings[0].setting, 1u);
  EXPECT_EQ(summary.settings[1].ended, 0) << "it counts in no mean";
  EXPECT_TRUE(summary.settings[1].values.empty());
}

TEST_F(TrainSweep, GoesOnWhereItWasStoppedToTheSameBits) {
  const Sweep whole = Sweep::create(plan({"0.01", "0.1", "0.2"}), path("whole"), "tiny");
  (void)train_sweep(whole, {.threads = 1});
  {
    const Sweep sweep = Sweep::create(plan({"0.01", "0.1", "0.2"}), path("s"), "tiny");
    EXPECT_THROW((void)Sweep::open(path("s")), ConfigError) << "another has it";
    int asked = 0;
    Heard heard;
    const SweepOutcome outcome =
        train_sweep(sweep, {.threads = 1, .stop = [&] { return ++asked > 12; }, .observer = &heard});
    EXPECT_TRUE(outcome.stopped);
    EXPECT_EQ(heard.begun, (Indices{0, 1})) << "an epoch has 6 updates: the second run is under way";
    EXPECT_EQ(heard.ended, Indices{0});
    const SweepSummary summary = summary_of(sweep);
    EXPECT_EQ(summary.results[1].state, "stopped");
    EXPECT_EQ(summary.results[2].state, "none");
  }
  const Sweep sweep = Sweep::open(path("s"));
  EXPECT_EQ(sweep.plan(), whole.plan());
  Heard heard;
  EXPECT_FALSE(train_sweep(sweep, {.threads = 1, .observer = &heard}).stopped);
  EXPECT_EQ(heard.before, Indices{0});
  EXPECT_EQ(heard.ended, (Indices{1, 2}));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(log_of(sweep.runs()[i]), log_of(whole.runs()[i])) << i;
  const SweepSummary a = summary_of(sweep), b = summary_of(whole);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(a.results[i].values, b.results[i].values) << i;
}

TEST_F(TrainSweep, MoreSeedsAreTrainedLater) {
  { (void)train_sweep(Sweep::create(plan({"0.01", "0.1"}), path("s"), "tiny"), {.threads = 1}); }
  Sweep sweep = Sweep::open(path("s"));
  sweep.set_repeat(2);
  Heard heard;
  (void)train_sweep(sweep, {.threads = 1, .observer = &heard});
  EXPECT_EQ(heard.before, (Indices{0, 1}));
  EXPECT_EQ(heard.ended, (Indices{2, 3}));
  EXPECT_EQ(sweep.runs()[3].seed, 8u);
  EXPECT_THROW(sweep.set_repeat(1), ConfigError);
}

TEST_F(TrainSweep, SeedsMayBeNamed) {
  SweepPlan seeds = plan();
  seeds.axes = {{"seed", {"3", "9"}}};
  const Sweep sweep = Sweep::create(seeds, path("s"), "tiny");
  EXPECT_EQ(sweep.text_of(sweep.runs()[1]), "seed=9");
  EXPECT_EQ(sweep.runs()[1].folder.filename(), "2-seed=9");
  EXPECT_EQ(sweep.config_of(sweep.runs()[1]).seed, 9u);
}

TEST_F(TrainSweep, RunsThatEndedByTheClockAreLeftAsTheyAre) {
  SweepPlan timed = plan({"0.01"});
  timed.overrides = {"train.epochs=1000000", "train.max_time=1s"};
  const Sweep sweep = Sweep::create(timed, path("s"), "tiny");
  Heard heard, later;
  EXPECT_FALSE(train_sweep(sweep, {.threads = 1, .observer = &heard}).stopped);
  EXPECT_EQ(heard.ended, Indices{0});
  (void)train_sweep(sweep, {.threads = 1, .observer = &later});
  EXPECT_EQ(later.before, Indices{0});
  EXPECT_EQ(summary_of(sweep).settings[0].ended, 1);
}

TEST_F(TrainSweep, EverySettingIsCheckedBeforeAnyIsTrained) {
  EXPECT_THROW((void)Sweep::create(plan({"0.1", "fast"}), path("s"), "tiny"), ConfigError);
  EXPECT_FALSE(fs::exists(path("s")));
}

TEST_F(TrainSweep, FoldersThatAreTakenAndDamagedOnesAreRefused) {
  { (void)Sweep::create(plan(), path("s"), "tiny"); }
  const auto error_of = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(error_of([&] {
              (void)Sweep::create(plan(), path("s"), "tiny");
            }).find("holds a sweep already; `bantam sweep --resume"),
            std::string::npos);
  fs::create_directory(path("r"));
  write_file_atomically(path("r") / "run.json", "{}");
  EXPECT_NE(error_of([&] { (void)Sweep::create(plan(), path("r"), "tiny"); }).find("holds a run already (run.json)"),
            std::string::npos);
  EXPECT_NE(error_of([&] { (void)Sweep::open(path("r")); }).find("holds no sweep (there is no sweep.json)"),
            std::string::npos);
  for (const char* text :
       {"", "{}", "[]", "{\"config\": 1}",
        R"({"config": "a", "overrides": [], "axes": [{"key": "seed", "values": []}], "repeat": 1})"}) {
    write_file_atomically(path("s") / "sweep.json", text);
    EXPECT_NE(error_of([&] { (void)Sweep::open(path("s")); }).find("sweep.json: damaged"), std::string::npos) << text;
  }
}

TEST(Spread, OfNoneOneAndMore) {
  EXPECT_EQ(spread_of({}).count, 0);
  const double one[] = {3}, more[] = {1, 2, 3, 6};
  EXPECT_EQ(spread_of(one).mean, 3);
  EXPECT_FALSE(spread_of(one).deviation.has_value());
  const Spread spread = spread_of(more);
  EXPECT_EQ(spread.count, 4);
  EXPECT_DOUBLE_EQ(spread.mean, 3);
  EXPECT_DOUBLE_EQ(*spread.deviation, std::sqrt(14.0 / 3)) << "4 + 1 + 0 + 9 over 3";
  EXPECT_EQ(spread.least, 1);
  EXPECT_EQ(spread.most, 6);
}

}  // namespace
}  // namespace bantam::run::train_sweep_test
