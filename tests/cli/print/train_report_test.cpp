// The closing summary and its JSON, from an outcome made by hand; and events handed to a Progress.
#include "bantam/cli/print/train_report.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/run/run_fixture.h"

namespace bantam::cli::train_report_test {
namespace {

class TrainReportTest : public run::RunTest {
 protected:
  static run::Config handle(run::RunConfig config) {
    return run::Config(std::make_shared<const run::RunConfig>(std::move(config)));
  }
  static run::Outcome outcome() {
    run::Outcome outcome{.config = handle(tiny()), .folder = "runs/a"};
    outcome.result = {.epochs = 2,
                      .updates = 12,
                      .train = {.loss = 1.5, .accuracy = 0.5, .samples = 96},
                      .validation = {.loss = 2.5, .accuracy = 0.25, .samples = 20},
                      .images_per_second = 1000,
                      .epoch = 2};
    outcome.parameters = 100;
    outcome.memory.peak_bytes = 2048;
    outcome.planned_peak_bytes = 2048;
    return outcome;
  }
  static void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks " << part;
  }
};

TEST_F(TrainReportTest, SummaryOfARunThatEnded) {
  const run::Outcome ended = outcome();
  const std::string text = closing_summary({.outcome = ended, .seconds = 3, .start_seconds = 0.5});
  EXPECT_EQ(text.rfind("tiny: 2 epochs, 12 updates in ", 0), 0u) << text;
  expect_in(text, "validation  accuracy 0.2500, loss 2.5000, 20 images\n");
  expect_in(text, "training    accuracy 0.5000, loss 1.5000, 96 images\n");
  expect_in(text, "2.00 KiB in use at the peak (as planned)");
  expect_in(text, "0.50 s from the start");
  expect_in(text, "runs/a/\n");
}

TEST_F(TrainReportTest, TheBestEvaluationIsToldWhereItsWeightsAreKept) {
  run::Outcome ended = outcome();
  ended.config = handle(tiny({"checkpoint.best={metric: accuracy}"}));
  EXPECT_EQ(closing_summary({.outcome = ended}).find("best"), std::string::npos) << "nothing was evaluated";
  ended.best = 0.625;
  ended.best_epoch = 1;
  expect_in(closing_summary({.outcome = ended}),
            "  best        accuracy 0.6250 in epoch 1: weights-best.safetensors, `--checkpoint best`\n");
}

TEST_F(TrainReportTest, OfARunThatPrunesTheSizeAfterGzip) {
  run::Outcome ended = outcome();
  EXPECT_EQ(closing_summary({.outcome = ended}).find("gzip"), std::string::npos);
  EXPECT_FALSE(closing_json({.outcome = ended}).contains("weights_gzip_bytes"));
  ended.config = handle(tiny({"train.ema={}"}));
  ended.weights = {.bytes = 4096, .gzip_bytes = 1024};
  const std::string text = closing_summary({.outcome = ended});
  expect_in(text, "size        4.00 KiB in weights.safetensors, 1.00 KiB after gzip (25%)\n");
  expect_in(text, "weights.safetensors weights-ema.safetensors checkpoints/\n");
  EXPECT_EQ(closing_json({.outcome = ended})["weights_gzip_bytes"], 1024);
}

TEST_F(TrainReportTest, NamesTheFilesThatLogAsksFor) {
  run::Outcome ended = outcome();
  EXPECT_EQ(closing_summary({.outcome = ended}).find("tensorboard"), std::string::npos);
  ended.config = handle(tiny({"log.tensorboard=true"}));
  expect_in(closing_summary({.outcome = ended}), "checkpoints/\n                tensorboard/\n");
  ended.config = handle(tiny({"log={tensorboard: true, histograms: 5}"}));
  expect_in(closing_summary({.outcome = ended}), "checkpoints/\n                histograms.jsonl tensorboard/\n");
}

TEST_F(TrainReportTest, SummaryOfARunThatWasStopped) {
  run::Outcome stopped = outcome();
  stopped.result.stopped = true;
  stopped.result.epoch = 1;
  stopped.result.update = 3;
  stopped.planned_peak_bytes = 4096;
  const std::string text = closing_summary({.outcome = stopped});
  EXPECT_EQ(text.rfind("stopped in epoch 2 after 3 of its updates; go on with\n  bantam train --resume runs/a\n", 0),
            0u);
  expect_in(text, "(planned 4.00 KiB)");
  EXPECT_EQ(text.find("from the start"), std::string::npos) << "there were no first updates";
}

TEST_F(TrainReportTest, JsonTellsTheValidationResultsWhereThereAreSome) {
  run::Outcome ended = outcome();
  const auto with = closing_json({.outcome = ended, .seconds = 3});
  EXPECT_DOUBLE_EQ(with["accuracy"], 0.25);
  EXPECT_EQ(with["held_out"], true);
  EXPECT_EQ(with["run_dir"], "runs/a");
  EXPECT_EQ(with["peak_bytes"], 2048);
  EXPECT_FALSE(with.contains("host_peak_bytes"));
  ended.result.validation = {};
  const auto without = closing_json({.outcome = ended});
  EXPECT_DOUBLE_EQ(without["accuracy"], 0.5);
  EXPECT_EQ(without["held_out"], false);
}

/// As in metrics.jsonl.
TEST_F(TrainReportTest, AccuracyHasTheNameOfTheLoss) {
  run::Outcome ended = outcome();
  ended.result.test = {.loss = 2, .accuracy = 0.75, .samples = 8};
  ended.config = handle(tiny({"data.labels=soft", "train.loss=binary_cross_entropy"}));
  const auto json = closing_json({.outcome = ended});
  EXPECT_DOUBLE_EQ(json["binary_accuracy"], 0.25);
  EXPECT_DOUBLE_EQ(json["train_binary_accuracy"], 0.5);
  EXPECT_DOUBLE_EQ(json["test_binary_accuracy"], 0.75);
  EXPECT_FALSE(json.contains("accuracy") || json.contains("train_accuracy") || json.contains("test_accuracy"));
  expect_in(closing_summary({.outcome = ended}), "test        binary accuracy 0.7500, loss 2.0000, 8 images\n");
}

TEST_F(TrainReportTest, MetricsAndTheTestSetAreTold) {
  run::Outcome ended = outcome();
  const MetricPtr matrix = metrics_for({2}, {confusion_matrix()})[0], top = metrics_for({2}, {top_k(1)})[0];
  ended.result.test = {.loss = 2, .accuracy = 0.75, .samples = 8, .values = {{matrix, {4, 1, 1, 2}}, {top, {6, 8}}}};
  const std::string text = closing_summary({.outcome = ended});
  expect_in(text, "test        accuracy 0.7500, loss 2.0000, top_k 0.7500, 8 images\n");
  expect_in(text, "confusion_matrix of labels (rows) and predictions:\n");
  expect_in(text, "      4      1\n                    1      2\n");
  const auto json = closing_json({.outcome = ended});
  EXPECT_DOUBLE_EQ(json["test_accuracy"], 0.75);
  EXPECT_DOUBLE_EQ(json["test_top_k"], 0.75);
  EXPECT_DOUBLE_EQ(json["accuracy"], 0.25) << "of the validation samples";
}

TEST_F(TrainReportTest, MatricesKeepToTheColumns) {
  run::Outcome ended = outcome();
  const MetricPtr matrix = metrics_for({12}, {confusion_matrix()})[0];
  ended.result.validation.values = {{matrix, std::vector<double>(144, 1234)}};
  const auto longest = [](const std::string& text) {
    std::size_t most = 0, line = 0;
    for (const char c : text) most = std::max(most, line = c == '\n' ? 0 : line + 1);
    return most;
  };
  const auto text = [&](std::size_t columns) { return closing_summary({.outcome = ended, .columns = columns}); };
  expect_in(text(100), "   1234   1234\n");
  expect_in(text(80), " 1234 1234 1234\n");
  const std::string narrow = text(80);
  EXPECT_LE(longest(narrow.substr(0, narrow.find("  speed"))), 80u) << narrow;
  expect_in(text(70), "confusion_matrix of 12 classes: `bantam evaluate RUN --json` has it\n");
}

TEST_F(TrainReportTest, EventsReachTheProgress) {
  std::FILE* const out = std::tmpfile();
  ASSERT_NE(out, nullptr);
  {
    Progress progress(ProgressMode::json, out);
    ProgressCallback callback(progress);
    EXPECT_FALSE(callback.first());
    callback.on_progress({.epoch = 1, .epochs = 2, .update = 3, .updates = 6});
    EXPECT_TRUE(callback.first());
    callback.on_smaller_micro_batch({.epoch = 0, .update = 4, .samples = 8});
    const Metrics measured{.loss = 2, .samples = 4, .values = {{metrics_for({2}, {top_k(1)})[0], {3, 4}}}};
    callback.on_evaluated({.epoch = 1, .epochs = 2, .update = 6, .updates = 6, .validation = {.loss = 77}});
    callback.on_evaluated({.epoch = 1, .epochs = 2, .update = 4, .updates = 6, .validation = measured});
    callback.on_epoch_end({.epoch = 1, .epochs = 2, .train = measured, .validation = measured});
    callback.on_test({.epochs = 2, .updates = 12, .test = measured});
  }
  std::rewind(out);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  std::fclose(out);
  expect_in(text, "\"epoch\":2");
  EXPECT_EQ(text.find("77"), std::string::npos) << "an epoch's end tells its evaluation";
  expect_in(text, R"({"event":"evaluated","epoch":2,"epochs":2,"step":4,"steps":6,"validation_loss":2.0)");
  expect_in(text, R"("accuracy":0.0,"top_k":0.75,"seconds")");
  expect_in(text, R"("validation_accuracy":0.0,"validation_top_k":0.75})");
  expect_in(text, R"({"event":"test","epoch":2,"epochs":2,"test_loss":2.0,"test_accuracy":0.0,"test_top_k":0.75})");
  expect_in(text, "update 5 of epoch 1 is repeated in micro-batches of 8");
}

}  // namespace
}  // namespace bantam::cli::train_report_test
