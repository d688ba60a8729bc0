// What a report says of a run: the evaluation's own loss, accuracy and confusions, the worst samples, the best weights,
// and what several runs differ in.
#include "bantam/run/report/run_report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "bantam/base/error.h"
#include "bantam/run/evaluate/evaluation.h"
#include "bantam/run/report/run_differences.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::run_report_test {
namespace {

namespace fs = std::filesystem;

class RunReportTest : public RunTest {
 protected:
  void run(const std::string& name, const std::vector<std::string>& overrides = {}) const {
    (void)train(tiny(overrides), {.threads = 1, .folder = path(name)});
  }
  RunReport report(const std::string& name, const HeldOutOptions& held_out = {.threads = 2}) const {
    return report_of(path(name), {.held_out = held_out});
  }
  static bool is_descending(const std::vector<AnsweredSample>& list) {
    return std::ranges::is_sorted(list, std::ranges::greater(), &AnsweredSample::loss);
  }
};

TEST_F(RunReportTest, ItHasTheEvaluationsNumbers) {
  run("r", {"train.epochs=4"});
  const RunReport found = report("r");
  ASSERT_TRUE(found.held_out) << found.no_held_out;
  const HeldOutAnswers& answers = *found.held_out;
  const Evaluation own = evaluate(open_trained_model(path("r")), {.threads = 2});
  EXPECT_EQ(answers.samples, 20);
  EXPECT_EQ(answers.of, 20);
  EXPECT_EQ(answers.accuracy, own.metrics.accuracy);
  // Sums of 20 float32 losses in other orders, each rounded once: 2^-23 a loss, and as much for their sum.
  EXPECT_NEAR(answers.loss, own.metrics.loss, 2 * std::ldexp(own.metrics.loss, -23));
  EXPECT_EQ(answers.matrix.values, own.more.at(0).table().values);
  EXPECT_EQ(answers.matrix.columns, 10);
}

TEST_F(RunReportTest, TheWorstComeFirstAndTheRandomOnesAreTheSeeds) {
  run("r");
  const HeldOutOptions options{.shown = 6, .threads = 2};
  const RunReport found = report("r", options);
  ASSERT_TRUE(found.held_out) << found.no_held_out;
  const HeldOutAnswers& answers = *found.held_out;
  ASSERT_EQ(answers.worst.size(), 6u);
  EXPECT_TRUE(is_descending(answers.worst));
  ASSERT_EQ(answers.random.size(), 6u);
  EXPECT_TRUE(std::ranges::is_sorted(answers.random, {}, &AnsweredSample::index));
  for (const AnsweredSample& sample : answers.worst) {
    EXPECT_EQ(sample.image.size, (ImageSize{32, 32}));
    ASSERT_EQ(sample.said.size(), 3u);
    EXPECT_GE(sample.said[0].second, sample.said[1].second);
    EXPECT_EQ(sample.right == 1, sample.said[0].first == sample.truth) << sample.name;
    for (const auto& [said, probability] : sample.said)
      if (said == sample.truth) {
        EXPECT_NEAR(sample.loss, -std::log(probability), 1e-5) << "the probability is rounded to float32";
      }
  }
  const RunReport again = report("r", options);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(again.held_out->random[i].index, answers.random[i].index);
    EXPECT_EQ(again.held_out->worst[i].index, answers.worst[i].index);
    EXPECT_EQ(again.held_out->worst[i].loss, answers.worst[i].loss);
  }
  // Every sample is shown where all are asked for, and the worst of all is the first.
  const RunReport all = report("r", {.shown = 100, .threads = 2});
  std::set<std::int64_t> indices;
  for (const AnsweredSample& sample : all.held_out->random) indices.insert(sample.index);
  EXPECT_EQ(indices.size(), 20u);
  EXPECT_EQ(all.held_out->worst.front().index, answers.worst.front().index);
}

/// Killed before its first checkpoint: run.json is of the beginning.
TEST_F(RunReportTest, AKilledRunCameAsFarAsItsMetrics) {
  run("r", {"train.epochs=3"});
  RunRecord record = load_record(path("r/run.json"));
  record.state = RunState::running;
  record.epoch = record.update = record.updates = record.best_epoch = 0;
  record.metric.clear();
  write_record(path("r/run.json"), record);
  std::filesystem::remove_all(path("r/checkpoints"));
  std::string lines = read_file(path("r/metrics.jsonl"));
  lines.resize(lines.find(R"({"kind":"update","epoch":3,"update":2)"));  // after update 1 of the third epoch
  write_file_atomically(path("r/metrics.jsonl"), lines);
  RunReportOptions options;
  options.held_out.reset();
  const RunReport killed = report_of(path("r"), options);
  EXPECT_EQ(killed.run.record.updates, 13);
  EXPECT_EQ(position_text(killed.run.record), "epoch 3 of 3");
  const std::string headline = headline_of(std::span(&killed, 1));
  EXPECT_NE(headline.find("was killed in epoch 3 of 3: best validation accuracy"), std::string::npos) << headline;
  EXPECT_NE(headline.find("13 updates"), std::string::npos) << headline;
}

TEST_F(RunReportTest, OfManySamplesSomeAreSpreadOverAll) {
  run("r");
  const RunReport found = report("r", {.most_samples = 7, .shown = 3, .threads = 2});
  EXPECT_EQ(found.held_out->samples, 7);
  EXPECT_EQ(found.held_out->of, 20);
}

TEST_F(RunReportTest, TheBestWeightsAnswer) {
  run("r", {"train.epochs=3", "checkpoint.best={metric: loss}"});
  const RunReport found = report("r");
  EXPECT_EQ(found.weights_file.filename(), "weights-best.safetensors");
  EXPECT_FALSE(found.larger_is_better);
  EXPECT_NEAR(found.held_out->loss, found.run.record.best, 2 * std::ldexp(found.run.record.best, -23));
  ASSERT_FALSE(found.weights.empty());
  double counted = 0;
  for (const double count : found.weights.front().counts) counted += count;
  EXPECT_GT(counted, 0);
}

TEST_F(RunReportTest, NumbersAreAnsweredWithNumbers) {
  run("r", {"data.labels=values", "train.loss=mse", "train.metrics=[]",
            "model.layers=[global_average_pool, dense: {units: 3}]"});
  const RunReport found = report("r");
  ASSERT_TRUE(found.held_out) << found.no_held_out;
  EXPECT_EQ(found.held_out->task, Task::values);
  EXPECT_TRUE(std::isnan(found.held_out->accuracy));
  EXPECT_EQ(found.held_out->matrix.columns, 0);
  const AnsweredSample& worst = found.held_out->worst.front();
  ASSERT_EQ(worst.said.size(), 3u);
  EXPECT_EQ(worst.said[1].first, "1") << "in their order";
  EXPECT_NE(worst.truth, "");
  EXPECT_TRUE(is_descending(found.held_out->worst));
}

TEST_F(RunReportTest, PixelsAreAnsweredWithMasks) {
  run("r", {"data.labels=pixels", "model.layers=[conv2d: {filters: 11, kernel: 3, padding: same}]"});
  const RunReport found = report("r");
  ASSERT_TRUE(found.held_out) << found.no_held_out;
  const HeldOutAnswers& answers = *found.held_out;
  EXPECT_EQ(answers.task, Task::segmentation);
  const Evaluation own = evaluate(open_trained_model(path("r")), {.threads = 2});
  EXPECT_EQ(answers.matrix.values, own.more.at(0).table().values) << "every pixel is counted";
  const AnsweredSample& worst = answers.worst.front();
  EXPECT_EQ(worst.said_mask.size, (ImageSize{32, 32}));
  EXPECT_EQ(worst.truth_mask.size, (ImageSize{32, 32}));
  EXPECT_GT(worst.right, 0);
  EXPECT_LT(worst.right, 1);
}

TEST_F(RunReportTest, SoftTargetsAreOfTheirLargestClass) {
  run("r", {"data.labels=soft", "train.loss={softmax_cross_entropy: {targets: values}}", "train.metrics=[]"});
  const RunReport found = report("r");
  ASSERT_TRUE(found.held_out) << found.no_held_out;
  const Evaluation own = evaluate(open_trained_model(path("r")), {.threads = 2});
  EXPECT_EQ(found.held_out->matrix.values, own.more.at(0).table().values);
}

TEST_F(RunReportTest, WithoutDataTheFilesAreTold) {
  run("r");
  std::string config = read_file(path("r") / "config.yaml");
  const std::size_t format = config.find("format: generated");
  ASSERT_NE(format, std::string::npos);
  config.replace(format, 17, "format: cifar10\n  path: /nowhere");
  for (const char* key : {"train_samples", "test_samples", "  seed"}) {
    const std::size_t at = config.find(std::string("  ") + key, format);
    if (at != std::string::npos) config.erase(at, config.find('\n', at) + 1 - at);
  }
  write_file_atomically(path("r") / "config.yaml", config);
  const RunReport found = report("r");
  EXPECT_FALSE(found.held_out);
  EXPECT_NE(found.no_held_out, "");
  EXPECT_EQ(found.no_weights, "");
  EXPECT_FALSE(found.weights.empty()) << "weights need no data";
  EXPECT_NE(found.history.find("loss"), nullptr);
}

TEST(RunHeadline, SaysTheMeanIouOfAClassAPixel) {
  std::vector<RunReport> reports(1);
  reports[0].name = "roads";
  reports[0].held_out = HeldOutAnswers{.task = Task::segmentation, .samples = 2, .names = {"sky", "road"}};
  reports[0].held_out->matrix = {.values = {6, 2, 1, 3}, .columns = 2};  // IoU 6/9 and 3/6
  EXPECT_TRUE(headline_of(reports).ends_with(" Mean IoU of 2 held-out images: 0.5833.")) << headline_of(reports);
  reports[0].run.record.metric = "mean_iou";
  EXPECT_EQ(headline_of(reports).find("Mean IoU"), std::string::npos) << "it is the best evaluation's metric";
  reports[0].held_out->task = Task::classes;
  reports[0].run.record.metric = "loss";
  EXPECT_EQ(headline_of(reports).find("Mean IoU"), std::string::npos);
}

TEST_F(RunReportTest, RunsAreComparedByTheirBest) {
  run("a", {"train.epochs=1"});
  run("b", {"train.epochs=5", "train.optimizer.sgd.learning_rate=0.1"});
  std::vector<RunReport> reports;
  for (const fs::path& folder : run_folders(std::vector<fs::path>{path("")}))
    reports.push_back(report_of(folder, {.held_out = std::nullopt}));
  ASSERT_EQ(reports.size(), 2u) << "the runs in a folder";
  EXPECT_EQ(reports[0].name, "a");
  EXPECT_TRUE(reports[0].weights.empty()) << "files alone";
  std::set<std::string> keys;
  for (const RunDifference& one : config_differences(reports)) {
    keys.insert(one.name);
    ASSERT_EQ(one.values.size(), 2u);
    EXPECT_NE(one.values[0], one.values[1]) << one.name;
  }
  EXPECT_TRUE(keys.contains("train.epochs") && keys.contains("train.optimizer.sgd.learning_rate"));
  EXPECT_FALSE(keys.contains("seed"));
  reports[0].run.record.best = 0.25;
  reports[1].run.record.best = 0.5;
  EXPECT_EQ(best_of(reports), &reports[1]);
  EXPECT_EQ(headline_of(reports).substr(0, 46), "b is the best of 2 runs: validation accuracy 0");
  for (RunReport& one : reports) one.larger_is_better = false;
  EXPECT_EQ(best_of(reports), reports.data());
  reports[0].run.record.metric = "loss";
  EXPECT_EQ(best_of(reports), nullptr) << "of another metric";
  EXPECT_NE(headline_of(reports), "");
  reports[1].name = "a";
  make_names_distinct(reports);
  EXPECT_EQ(reports[1].name, path("b").string());
}

TEST(RunDifferences, WhatARunHasNotIsOneDifference) {
  std::vector<RunReport> reports(2);
  reports[0].config = {{"seed", "7"},
                       {"train.optimizer.sgd.learning_rate", "0.1"},
                       {"train.optimizer.sgd.momentum", "0.9"},
                       {"train.schedule", "{}"},
                       {"train.epochs", "2"}};
  reports[1].config = {{"seed", "7"},
                       {"train.optimizer.adam.learning_rate", "0.001"},
                       {"train.schedule", "{}"},
                       {"train.epochs", "3"},
                       {"train.stop_early.metric", "loss"},
                       {"train.stop_early.patience", "5"}};
  std::vector<std::string> names;
  for (const RunDifference& one : config_differences(reports)) names.push_back(one.name);
  EXPECT_EQ(names, (std::vector<std::string>{"train.optimizer", "train.epochs", "train.stop_early"}));
  const std::vector<RunDifference> all = config_differences(reports);
  EXPECT_EQ(all[0].values,
            (std::vector<std::string>{"sgd: {learning_rate: 0.1, momentum: 0.9}", "adam: {learning_rate: 0.001}"}));
  EXPECT_EQ(all[1].values, (std::vector<std::string>{"2", "3"}));
  EXPECT_EQ(all[2].values, (std::vector<std::string>{"", "{metric: loss, patience: 5}"}));
}

TEST(RunDifferences, AnEmptyMapIsNoKeyOfItsOwn) {
  std::vector<RunReport> reports(2);
  reports[0].config = {{"data.evaluation", "{}"}};
  reports[1].config = {{"data.evaluation.batch", "8"}};
  for (int turn = 0; turn < 2; ++turn, std::swap(reports[0], reports[1])) {
    const std::vector<RunDifference> all = config_differences(reports);
    ASSERT_EQ(all.size(), 1u) << "once, not as absent and as empty";
    EXPECT_EQ(all[0].name, "data.evaluation");
    EXPECT_EQ(all[0].values[static_cast<std::size_t>(turn)], "{}");
    EXPECT_EQ(all[0].values[static_cast<std::size_t>(1 - turn)], "{batch: 8}");
  }
}

TEST_F(RunReportTest, AFolderWithoutARunIsRefused) {
  fs::create_directories(path("empty"));
  EXPECT_THROW((void)run_folders(std::vector<fs::path>{path("empty")}), DataError);
  EXPECT_THROW((void)report("empty"), DataError);
}

}  // namespace
}  // namespace bantam::run::run_report_test
