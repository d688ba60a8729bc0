// An evaluation of a run's weights has the bits of the run's own last evaluation; and what it tells of classes.
#include "bantam/run/evaluate/evaluation.h"

#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/run/evaluate/class_report.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::evaluation_test {
namespace {

class EvaluationTest : public RunTest {
 protected:
  void run(const std::string& name, const std::vector<std::string>& overrides = {}) const {
    (void)train(tiny(overrides), {.threads = 1, .folder = path(name)});
  }
  /// The last line of metrics.jsonl that has `key`.
  nlohmann::json last_line(const std::string& name, const std::string& key) const {
    std::vector<nlohmann::json> lines = lines_without_clock(read_file(path(name) / "metrics.jsonl"));
    std::erase_if(lines, [&](const nlohmann::json& line) { return !line.contains(key); });
    return lines.empty() ? nlohmann::json() : lines.back();
  }
  /// Every number of the line about the samples, bit for bit. `accuracy`: its name there; empty: it has none.
  static void expect_equal(const Metrics& metrics, const nlohmann::json& line, const std::string& prefix,
                           const std::string& accuracy = "accuracy") {
    EXPECT_EQ(metrics.loss, line.at(prefix + "loss").get<double>());
    if (!accuracy.empty()) {
      EXPECT_EQ(metrics.accuracy, line.at(prefix + accuracy).get<double>());
    }
    EXPECT_EQ(accuracy == "accuracy", line.contains(prefix + "accuracy"));
    EXPECT_EQ(metrics.samples, line.at(prefix + "samples").get<std::int64_t>());
    for (const MetricValue& value : metrics.values) {
      const std::string name = prefix + std::string(value.name());
      ASSERT_TRUE(line.contains(name)) << name;
      if (value.table().is_matrix()) continue;
      EXPECT_EQ(value.value(), line.at(name).get<double>()) << name;
    }
  }
  Evaluation expect_same(const std::string& name, const std::vector<std::string>& overrides,
                         const TrainedModelOptions& options = {}) const {
    run(name, overrides);
    const TrainedModel model = open_trained_model(path(name), options);
    Evaluation found = evaluate(model, {.threads = 2});
    expect_equal(found.metrics, last_line(name, "validation_loss"), "validation_",
                 std::string(accuracy_name(model.config)));
    EXPECT_EQ(found.peak_bytes, found.planned_peak_bytes);
    EXPECT_GT(found.planned_peak_bytes, 0u);
    EXPECT_GE(found.planned_pool_bytes, found.planned_peak_bytes);
    return found;
  }
};

TEST_F(EvaluationTest, ItHasTheBitsOfTheRunsOwn) {
  const Evaluation found = expect_same("r", {});
  EXPECT_EQ(found.task, Task::classes);
  EXPECT_EQ(found.batch_size, 16);
  EXPECT_EQ(found.metrics.samples, 20);
  EXPECT_TRUE(found.metrics.values.empty()) << "the configuration's metrics alone";
  ASSERT_EQ(found.more.size(), 2u);
  EXPECT_EQ(found.more[0].name(), "confusion_matrix");
  EXPECT_EQ(found.more[0].value(), found.metrics.accuracy);
  EXPECT_EQ(found.more[1].name(), "top_k");
  EXPECT_GE(found.more[1].value(), found.metrics.accuracy);
}

TEST_F(EvaluationTest, AnySettingOfTheRunsEvaluationsCounts) {
  (void)expect_same("metrics", {"train.metrics=[accuracy, f1, top_k: {k: 3}, confusion_matrix, auc]"});
  (void)expect_same("batch", {"train.evaluate={batch_size: 7}"});
  const Evaluation limited = expect_same("limited", {"train.evaluate={limit: 9}"});
  EXPECT_EQ(limited.metrics.samples, 9);
  (void)expect_same("augmented", {"data.pipeline=[shuffle, random_crop: {padding: 4}, normalize: {scale: 0.0039}, "
                                  "batch: {size: 16, drop_last: true}, prefetch: {depth: 3, workers: 2}]"});
  (void)expect_same("weighted",
                    {"train.loss={softmax_cross_entropy: {class_weights: [1, 2, 3, 4, 5, 6, 7, 8, 9, 1]}}"});
  (void)expect_same("averages", {"train.ema={decay: 0.5}"}, {.ema = true});
  (void)expect_same("recompute", {"recompute=all", "fusion=off"});
  (void)expect_same("half", {"precision=mixed_float16"});
  (void)expect_same("mirrored", {"train.evaluate={views: {flip: true}, batch_size: 7}"});
  (void)expect_same("share", {"train.evaluate={views: {padding: 2, share: 0.5}, batch_size: 7}", "train.metrics=[f1]"});
  (void)expect_same("small share", {"train.evaluate={views: {padding: 1, mode: zero, share: 0.2}}"});
}

TEST_F(EvaluationTest, AnotherSizeThanTrainingsIsEvaluatedWhereTheNetworkAllowsIt) {
  const std::string larger = "data.evaluation.pipeline=[resize: {size: 48}, center_crop: {size: 40}]";
  run("r");
  const Evaluation found = evaluate(open_trained_model(path("r"), {.overrides = {larger}}), {.threads = 1});
  EXPECT_EQ(found.metrics.samples, 20);
  EXPECT_TRUE(std::isfinite(found.metrics.loss));
  EXPECT_NE(found.metrics.loss, last_line("r", "validation_loss").at("validation_loss").get<double>());
  EXPECT_EQ(found.peak_bytes, found.planned_peak_bytes);
  // Features that lie side by side are of one size alone.
  run("flat", {"model.layers.2=flatten"});
  try {
    (void)evaluate(open_trained_model(path("flat"), {.overrides = {larger}}), {.threads = 1});
    FAIL() << "a dense layer read more features than it has weights for";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("layer 'dense' allows no other size"), std::string::npos) << error.what();
  }
  // Training evaluates at its own size, and says which stage makes another.
  try {
    run("refused", {larger});
    FAIL() << "training evaluated at another size";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("validation images are (40, 40, 3) after this stage"), std::string::npos) << message;
    EXPECT_NE(message.find("center_crop"), std::string::npos) << message;
  }
}

TEST_F(EvaluationTest, ASplitIsTheRunsOwnAndTheTestSetIsItsTest) {
  run("r", {"data.validation={split: 0.25}"});
  const TrainedModel model = open_trained_model(path("r"));
  const Evaluation validation = evaluate(model), test = evaluate(model, {.set = EvaluatedSet::test});
  expect_equal(validation.metrics, last_line("r", "validation_loss"), "validation_");
  expect_equal(test.metrics, last_line("r", "test_loss"), "test_");
  EXPECT_EQ(evaluate(model, {.set = EvaluatedSet::training}).metrics.samples, 72);
  run("plain");
  EXPECT_THROW((void)evaluate(open_trained_model(path("plain")), {.set = EvaluatedSet::test}), ConfigError);
}

TEST_F(EvaluationTest, AnEarlierCheckpointHasItsOwnEvaluation) {
  run("r", {"checkpoint.every=off", "train.max_updates=6", "train.epochs=2"});
  const nlohmann::json first = last_line("r", "validation_loss");
  RunDirectory folder = RunDirectory::open(path("r"));
  const std::vector<std::string> rest = {"train.max_updates=0"};
  (void)train(read_run_config(folder.config(), rest), {.threads = 1}, {}, {.resume = &folder});
  expect_equal(evaluate(open_trained_model(path("r"), {.checkpoint = "6"})).metrics, first, "validation_");
  expect_equal(evaluate(open_trained_model(path("r"))).metrics, last_line("r", "validation_loss"), "validation_");
  EXPECT_NE(first["validation_loss"], last_line("r", "validation_loss")["validation_loss"]);
}

TEST_F(EvaluationTest, SoftTargetsHaveAMatrixOfTheirLargest) {
  const Evaluation found = expect_same(
      "r", {"data.pipeline=[shuffle, normalize: {scale: 0.0039}, one_hot, mixup: {alpha: 0.2}, batch: {size: 16}]",
            "train.loss={softmax_cross_entropy: {targets: values}}"});
  EXPECT_EQ(found.task, Task::classes);
  ASSERT_EQ(found.more.size(), 1u);
  EXPECT_EQ(found.more[0].value(), found.metrics.accuracy);
}

TEST_F(EvaluationTest, SeveralLabelsAndValuesHaveTheirOwnMetrics) {
  std::ofstream csv(path("points.csv"));
  csv << "a,b,warm,wet,price\n";
  for (int i = 0; i < 80; ++i)
    csv << i % 7 << ',' << i % 5 << ',' << (i % 7 > 3) << ',' << (i % 5 > 2) << ',' << 2 * (i % 7) - i % 5 << '\n';
  csv.close();
  const std::string pipeline = "pipeline: [shuffle, batch: {size: 16}]}";
  const std::string file = "{format: csv, split: 0.25, features: [a, b], path: " + path("points.csv").string() + ", ";
  const Evaluation labels = expect_same(
      "labels", {"data=" + file + "label: [warm, wet], " + pipeline, "model={input: [2], layers: [dense: {units: 2}]}",
                 "train.loss=binary_cross_entropy", "train.metrics=[f1: {multi_label: true}]"});
  EXPECT_EQ(labels.task, Task::multi_label);
  const auto report = class_report(labels, {"warm", "wet"});
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->f1, labels.metrics.values.at(0).value());
  EXPECT_EQ(report->classes.at(1).name, "wet");
  EXPECT_TRUE(report->matrix.values.empty());
  ASSERT_EQ(labels.more.at(1).name(), "auc");
  EXPECT_EQ(report->auc, labels.more[1].value());
  EXPECT_EQ(report->classes.at(1).auc, labels.more[1].table().values.at(1));
  const Evaluation values = expect_same(
      "values", {"data=" + file + "target: price, " + pipeline, "model={input: [2], layers: [dense: {units: 1}]}",
                 "train.loss=mse", "train.metrics=[mae]"});
  EXPECT_EQ(values.task, Task::values);
  ASSERT_EQ(values.more.size(), 3u);
  EXPECT_FLOAT_EQ(static_cast<float>(values.more[0].value()), static_cast<float>(values.metrics.loss))
      << "each adds float32 squares in its own order";
  EXPECT_EQ(values.more[1].value(), values.metrics.values.at(0).value());
  EXPECT_FALSE(class_report(values, {}).has_value());
}

TEST_F(EvaluationTest, ClassesAreScikitLearns) {
  run("r", {"train.metrics=[accuracy, precision, recall, f1, mean_iou]"});
  const TrainedModel model = open_trained_model(path("r"));
  const Evaluation found = evaluate(model);
  const auto report = class_report(found, model.class_names);
  ASSERT_TRUE(report.has_value());
  ASSERT_EQ(report->classes.size(), 10u);
  EXPECT_EQ(report->precision, value_of(found.metrics, "precision"));
  EXPECT_EQ(report->recall, value_of(found.metrics, "recall"));
  EXPECT_EQ(report->f1, value_of(found.metrics, "f1"));
  EXPECT_EQ(report->iou, value_of(found.metrics, "mean_iou"));
  EXPECT_FALSE(report->auc.has_value()) << "of one class a sample none is counted";
  double samples = 0, correct = 0;
  for (const ClassScore& score : report->classes) {
    samples += score.count;
    correct += score.correct;
    EXPECT_EQ(std::isnan(score.recall), score.count == 0) << score.name;
  }
  EXPECT_EQ(samples, 20);
  EXPECT_EQ(correct / samples, found.metrics.accuracy);
  const std::vector<Confusion> confused = report->confusions(3);
  ASSERT_FALSE(confused.empty());
  double most = 0;
  for (std::size_t i = 0; i < 100; ++i)
    if (i % 11 != 0) most = std::max(most, report->matrix.values[i]);
  EXPECT_EQ(confused[0].count, most);
  EXPECT_NE(confused[0].label, confused[0].predicted);
}

// Another file's features are found by their names, and are standardized by the numbers of the run's training samples.
TEST_F(EvaluationTest, OtherRowsAreReadAsTheTrainingSamples) {
  const auto write = [&](const std::string& name, const std::string& header, const auto& row) {
    std::ofstream csv(path(name));
    csv << header << '\n';
    for (int i = 0; i < 60; ++i) csv << row(i) << '\n';
    return path(name).string();
  };
  const auto row = [](int i) { return fmt::format("{},{},{}", i % 7, 100 * (i % 5), i % 3); };
  const std::string own = write("own.csv", "a,b,kind", row), copy = write("copy.csv", "a,b,kind", row);
  const std::string turned = write("turned.csv", "kind,more,b,a",
                                   [](int i) { return fmt::format("{},1,{},{}", i % 3, 100 * (i % 5), i % 7); });
  const std::string shifted =
      write("shifted.csv", "a,b,kind", [](int i) { return fmt::format("{},{},{}", i % 7 + 50, 100 * (i % 5), i % 3); });
  const std::vector<std::string> overrides = {
      "data={format: csv, split: 0.25, label: kind, standardize: true, path: " + own +
          ", pipeline: [batch: {size: 16}]}",
      "model={input: [2], layers: [dense: {units: 3}]}", "checkpoint.every=off"};
  std::vector<std::string> begun = overrides;
  begun.emplace_back("train.max_updates=3");
  run("r", begun);
  const RunConfig config = read_run_config(path("r") / "config.yaml", {});
  ConfigMap data = config.document.map().map("data");
  EXPECT_EQ(data.texts("features"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(data.map("standardize").list("mean").size(), 2u);
  RunDirectory folder = RunDirectory::open(path("r"));
  const std::vector<std::string> rest = {"train.max_updates=0"};
  EXPECT_NO_THROW((void)train(read_run_config(folder.config(), rest), {.threads = 1}, {}, {.resume = &folder}));
  const auto loss = [&](const std::string& file) {
    const std::vector<std::string> other = {"data.path=" + file};
    return evaluate(open_trained_model(path("r"), {.overrides = other}), {.set = EvaluatedSet::all}).metrics.loss;
  };
  EXPECT_EQ(loss(copy), loss(own));
  EXPECT_EQ(loss(turned), loss(own));
  EXPECT_NE(loss(shifted), loss(own)) << "less its own mean it would be the same";
}

// Class numbers alone would be compared with those of other names.
TEST_F(EvaluationTest, OtherDataHaveTheModelsClasses) {
  const auto write = [&](const std::string& name, const std::vector<std::string>& classes) {
    std::ofstream csv(path(name));
    csv << "a,b,kind\n";
    for (std::size_t i = 0; i < 60; ++i) csv << i % 7 << ',' << i % 5 << ',' << classes[i % classes.size()] << '\n';
    return path(name).string();
  };
  const std::string own = write("own.csv", {"cat", "cow", "dog"}), other = write("other.csv", {"cat", "dog", "owl"});
  const std::string some = write("some.csv", {"dog", "cat"}), numbers = write("numbers.csv", {"2", "1", "0"});
  run("r", {"data={format: csv, split: 0.25, label: kind, path: " + own + ", pipeline: [batch: {size: 16}]}",
            "model={input: [2], layers: [dense: {units: 3}]}"});
  const auto samples = [&](const std::vector<std::string>& overrides) {
    return evaluate(open_trained_model(path("r"), {.overrides = overrides}), {.set = EvaluatedSet::all})
        .metrics.samples;
  };
  EXPECT_EQ(samples({}), 60);
  EXPECT_EQ(samples({"data.path=" + some, "data.classes=[cat, cow, dog]"}), 60);
  EXPECT_EQ(samples({"data.path=" + numbers}), 60) << "they have no names that could differ";
  try {
    (void)samples({"data.path=" + other});
    ADD_FAILURE() << "cow and dog are no dog and owl";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("the data have the class owl, which the model does not know: its classes are cat, cow and "
                        "dog; data.classes=[cat, dog] evaluates the others"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(EvaluationTest, ALimitIsRefusedBeforeASampleIsRead) {
  run("r");
  const std::uint64_t needed = evaluate(open_trained_model(path("r"))).planned_pool_bytes;
  const auto limit = [](std::uint64_t bytes) { return "memory.limits={cpu: " + std::to_string(bytes) + "}"; };
  std::int64_t batches = 0;
  const EvaluateOptions counts{.on_batch = [&](std::int64_t, std::int64_t) { ++batches; }};
  EXPECT_EQ(evaluate(open_trained_model(path("r"), {.overrides = {limit(needed)}}), counts).metrics.samples, 20);
  EXPECT_EQ(batches, 3) << "before each of two, and at the end";
  EXPECT_THROW((void)evaluate(open_trained_model(path("r"), {.overrides = {limit(needed / 2)}}), counts), OutOfMemory);
  EXPECT_EQ(batches, 3);
}

TEST_F(EvaluationTest, AStopEndsItWithoutAResult) {
  run("r");
  int asked = 0;
  EXPECT_THROW((void)evaluate(open_trained_model(path("r")), {.stop = [&] { return ++asked == 2; }}),
               EvaluationStopped);
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace bantam::run::evaluation_test
