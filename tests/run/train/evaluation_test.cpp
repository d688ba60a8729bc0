// Validation data, evaluations on the way, the test set at the end, and their metrics: what a run tells of them, and
// that a run which was stopped anywhere tells the same.
#include <functional>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::evaluation_test {
namespace {

using Lines = std::vector<nlohmann::json>;

class EvaluationTest : public RunTest {
 protected:
  Lines lines(const std::string& run, const std::string& kind = "") const {
    Lines found = lines_without_clock(read_file(path(run) / "metrics.jsonl"));
    if (!kind.empty()) std::erase_if(found, [&](const nlohmann::json& line) { return line["kind"] != kind; });
    return found;
  }
  Outcome run(const std::string& name, const std::vector<std::string>& overrides,
              const std::function<bool()>& stop = {}) const {
    return train(tiny(overrides), {.threads = 1, .folder = path(name), .stop = stop});
  }
  Outcome resume(const std::string& name, const std::vector<std::string>& overrides = {}) const {
    RunDirectory folder = RunDirectory::open(path(name));
    return train(read_run_config(folder.config(), overrides), {.threads = 1}, {}, {.resume = &folder});
  }
};

const std::vector<std::string> kSplit = {"data.validation={split: 0.25}", "train.evaluate={every: 4updates}",
                                         "train.metrics=[accuracy, f1, top_k: {k: 3}, confusion_matrix, auc]"};

TEST_F(EvaluationTest, ALineUnderWayIsResumedBesideMetricsOfEvaluationsAlone) {
  const std::vector<std::string> keys = {"train.metrics=[accuracy, f1, confusion_matrix]", "train.log_every=4"};
  run("whole", keys);
  std::vector<std::string> stopped = keys;
  stopped.emplace_back("train.max_updates=6");
  run("r", stopped);
  (void)resume("r", {"train.max_updates=0"});
  EXPECT_EQ(lines("r"), lines("whole"));
}

TEST_F(EvaluationTest, AResumeAfterAnEarlyStopHasTheTestAlone) {
  const std::vector<std::string> keys = {"data.validation={split: 0.25}", "train.epochs=9",
                                         "train.stop_early={patience: 1, min_delta: 100}"};
  const Outcome whole = run("whole", keys);
  ASSERT_TRUE(whole.result.stopped_early);
  std::int64_t asked = 0;  // the stop is asked for once a batch: the last times are those of the test
  (void)run("count", keys, [&] { return ++asked < 0; });
  (void)run("r", keys, [&, asked = asked]() mutable { return --asked <= 1; });
  ASSERT_TRUE(lines("r", "test").empty());
  const Outcome resumed = resume("r");
  EXPECT_EQ(resumed.result.updates, 0);
  EXPECT_EQ(lines("r"), lines("whole"));
}

TEST_F(EvaluationTest, ASplitKeepsTheTestSetForTheEnd) {
  const Outcome outcome = run("r", kSplit);  // 72 images, 5 updates an epoch; 24 for validation; 20 for the test
  EXPECT_EQ(outcome.result.updates, 10);
  EXPECT_EQ(outcome.result.validation.samples, 24);
  EXPECT_EQ(outcome.result.test.samples, 20);
  EXPECT_EQ(outcome.memory.peak_bytes, outcome.planned_peak_bytes);
  EXPECT_EQ(outcome.memory.peak_pool_bytes, outcome.planned_pool_bytes);
  const Lines evaluated = lines("r", "evaluation");
  ASSERT_EQ(evaluated.size(), 2u) << "after updates 4 and 8; the last one is the last epoch's end";
  EXPECT_EQ(evaluated[0]["epoch"], 1);
  EXPECT_EQ(evaluated[0]["update"], 4);
  EXPECT_EQ(evaluated[1]["epoch"], 2);
  EXPECT_EQ(evaluated[1]["update"], 3);
  EXPECT_EQ(evaluated[1]["validation_samples"], 24);
  const Lines epochs = lines("r", "epoch"), tests = lines("r", "test");
  EXPECT_FALSE(epochs[0].contains("validation_loss")) << "update 5 is none of every fourth";
  EXPECT_EQ(epochs[1]["validation_samples"], 24);
  ASSERT_EQ(tests.size(), 1u);
  EXPECT_EQ(lines("r").back(), tests[0]) << "it is the last thing that a run does";
  EXPECT_EQ(tests[0]["updates"], 10);
  EXPECT_EQ(tests[0]["test_samples"], 20);
}

TEST_F(EvaluationTest, MetricsAreToldByTheirNames) {
  (void)run("r", kSplit);
  const nlohmann::json update = lines("r", "update").back(), epoch = lines("r", "epoch").back();
  EXPECT_TRUE(update.contains("f1") && update.contains("top_k"));
  EXPECT_FALSE(update.contains("confusion_matrix") || update.contains("auc")) << "evaluations alone count them";
  EXPECT_EQ(epoch["validation_f1_of_classes"].size(), 10u);
  double samples = 0, right = 0;
  const nlohmann::json& rows = epoch["validation_confusion_matrix"];
  ASSERT_EQ(rows.size(), 10u);
  for (std::size_t label = 0; label < 10; ++label) {
    ASSERT_EQ(rows[label].size(), 10u);
    for (const double count : rows[label]) samples += count;
    right += rows[label][label].get<double>();
  }
  EXPECT_EQ(samples, 24);
  EXPECT_DOUBLE_EQ(right / 24, epoch["validation_accuracy"].get<double>());
  EXPECT_GE(epoch["validation_top_k"], epoch["validation_accuracy"]);
  EXPECT_GE(epoch["validation_auc"], 0.0);
  EXPECT_LE(epoch["validation_auc"], 1.0);
  EXPECT_TRUE(lines("r", "test")[0].contains("test_confusion_matrix"));
}

TEST_F(EvaluationTest, StoppedAnywhereARunTellsTheSame) {
  (void)run("whole", kSplit);
  const Lines whole = lines("whole");
  int stops = 0;
  for (int at = 1; at < 40; at += 3) {
    SCOPED_TRACE(at);
    const std::string name = "r" + std::to_string(at);
    int asked = 0;
    Outcome outcome = run(name, kSplit, [&] { return ++asked > at; });
    if (!outcome.result.stopped) break;
    ++stops;
    RunDirectory folder = RunDirectory::open(path(name));
    outcome = train(read_run_config(folder.config(), {}), {.threads = 1}, {}, {.resume = &folder});
    EXPECT_FALSE(outcome.finished_before);
    EXPECT_EQ(outcome.result.test.samples, 20);
    const Lines told = lines(name);
    ASSERT_EQ(told.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(told[i], whole[i]) << "line " << i;
    EXPECT_EQ(read_file(path(name) / "weights.safetensors"), read_file(path("whole/weights.safetensors")));
  }
  EXPECT_GE(stops, 8) << "in updates, evaluations and the test";
  RunDirectory folder = RunDirectory::open(path("whole"));
  EXPECT_TRUE(train(read_run_config(folder.config(), {}), {.threads = 1}, {}, {.resume = &folder}).finished_before);
  EXPECT_EQ(lines("whole"), whole) << "a test set is looked at once";
}

TEST_F(EvaluationTest, EvaluationsOnTheWayChangeNoUpdate) {
  (void)run("never", {"train.evaluate=false"});
  (void)run("often", {"train.evaluate={every: 1updates, batch_size: 7, limit: 13}",
                      "train.metrics=[accuracy, mean_iou, recall: {training: false}]"});
  EXPECT_EQ(tensors_of(path("never/weights.safetensors")), tensors_of(path("often/weights.safetensors")));
  const Lines evaluated = lines("often", "evaluation");
  EXPECT_EQ(evaluated.size(), 10u) << "and two at the epochs' ends";
  for (const nlohmann::json& line : evaluated) EXPECT_EQ(line["validation_samples"], 13);
  EXPECT_TRUE(evaluated[0].contains("validation_recall"));
  EXPECT_FALSE(lines("often", "update")[0].contains("recall"));
}

TEST_F(EvaluationTest, TheBatchOfAnEvaluationIsPlanned) {
  const Outcome wide = run("wide", {"train.evaluate={batch_size: 20}", "data.test_samples=60"});
  EXPECT_EQ(wide.memory.peak_bytes, wide.planned_peak_bytes);
  const Outcome narrow = run("narrow", {"train.evaluate={batch_size: 5}", "data.test_samples=60"});
  EXPECT_EQ(narrow.memory.peak_bytes, narrow.planned_peak_bytes);
  EXPECT_EQ(wide.result.validation.accuracy, narrow.result.validation.accuracy);
  EXPECT_NEAR(wide.result.validation.loss, narrow.result.validation.loss, 1e-6);
}

TEST_F(EvaluationTest, EverySecondEpochAndTheLast) {
  (void)run("r", {"train.epochs=3", "train.evaluate={every: 2epochs, limit: 1batch}"});
  const Lines epochs = lines("r", "epoch");
  EXPECT_FALSE(epochs[0].contains("validation_loss"));
  EXPECT_EQ(epochs[1]["validation_samples"], 16);
  EXPECT_EQ(epochs[2]["validation_samples"], 16);
}

TEST_F(EvaluationTest, TheBestIsThatOfAnyMetric) {
  const Outcome outcome = run("r", {"train.metrics=[accuracy, f1, top_k]", "train.evaluate={every: 3updates}",
                                    "checkpoint={best: {metric: top_k}, min_interval: 0s}"});
  const nlohmann::json record = nlohmann::json::parse(read_file(path("r/run.json")));
  EXPECT_EQ(record["best"]["metric"], "top_k");
  double best = 0;
  for (const nlohmann::json& line : lines("r"))
    if (line.contains("validation_top_k")) best = std::max(best, line["validation_top_k"].get<double>());
  EXPECT_DOUBLE_EQ(record["best"]["value"].get<double>(), best);
  EXPECT_TRUE(std::filesystem::exists(path("r/weights-best.safetensors")));
  EXPECT_THROW((void)tiny({"checkpoint={best: {metric: recall}}"}), ConfigError);
}

TEST_F(EvaluationTest, KeysAreRead) {
  const RunConfig plain = tiny(), often = tiny({"train.evaluate={every: 500updates, limit: 10batches}"});
  EXPECT_TRUE(plain.train.evaluate);
  EXPECT_EQ(plain.train.evaluate_every, Duration::epochs(1));
  EXPECT_FALSE(tiny({"train.evaluate=false"}).train.evaluate);
  EXPECT_EQ(often.train.evaluate_every, Duration::updates(500));
  EXPECT_EQ(often.data.value().evaluation.batches, 10);
  EXPECT_EQ(tiny({"train.evaluate={limit: 30samples}"}).train.evaluation.samples, 30);
  EXPECT_EQ(tiny({"train.evaluate={limit: 1 sample}"}).train.evaluation.samples, 1);
  EXPECT_EQ(tiny({"train.evaluate={limit: 1batch}"}).train.evaluation.batches, 1);
  EXPECT_EQ(tiny({"train.evaluate={limit: 999999999  batches}"}).train.evaluation.batches, 999'999'999);
  for (const char* wrong :
       {"train.evaluate={every: 10min}", "train.evaluate={every: 0}", "train.evaluate={limit: 0}",
        "train.evaluate={limit: few}", "train.evaluate={limit: samples}", "train.evaluate={limit: -3samples}",
        "train.evaluate={limit: +3samples}", "train.evaluate={limit: 03samples}",
        "train.evaluate={limit: 1000000000batches}", "train.evaluate={limit: 3 batchess}",
        "train.evaluate={limit: 3 samples more}", "train.evaluate={limit: 99999999999999999999batches}",
        "train.evaluate={batch_size: 0}", "train.evaluate=often", "train.metrics=[top_k: {k: 0}]",
        "train.metrics=[f1: {threshold: 1}]"})
    EXPECT_THROW((void)tiny({wrong}), ConfigError) << wrong;
}

}  // namespace
}  // namespace bantam::run::evaluation_test
