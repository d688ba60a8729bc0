// Progress lines: what they say, that they fit, and which mode writes what.
#include "bantam/cli/print/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"

namespace bantam::cli::progress_test {
namespace {

/// A stream whose text can be looked at.
class Output {
 public:
  Output() : stream_(open_memstream(&text_, &size_)) {}
  ~Output() {
    std::fclose(stream_);
    std::free(text_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  std::FILE* stream() { return stream_; }
  std::string text() {
    std::fflush(stream_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* stream_;
};

ProgressState example() {
  return {.epoch = 2,
          .epochs = 5,
          .step = 1250,
          .steps = 2500,
          .images_per_second = 14812.4,
          .eta_seconds = 83,
          .loss = 0.81234,
          .accuracy = 0.7125,
          .memory_now = 120ULL << 20,
          .memory_peak = 1280ULL << 20,
          .memory_limit = 4ULL << 30,
          .data_wait_share = 0.021};
}

EpochSummary example_epoch() {
  return {.epoch = 2,
          .epochs = 5,
          .loss = 0.8,
          .accuracy = 0.71,
          .validated = true,
          .validation_loss = 0.9,
          .validation_accuracy = 0.68,
          .seconds = 42,
          .images_per_second = 14812,
          .data_wait_share = 0.25};
}

std::ptrdiff_t count(const std::string& text, char c) { return std::count(text.begin(), text.end(), c); }

TEST(BarLine, SaysAllOfTheState) {
  const std::string line = bar_line(example(), 200);
  for (const char* part : {"epoch 2/5", "1250/2500", "14812 images/s", "ETA 1m 23s", "loss 0.8123", "data wait 2%"})
    EXPECT_NE(line.find(part), std::string::npos) << part << " is not in: " << line;
  EXPECT_EQ(count(line, '='), 14);  // half of the 28 columns inside the longest bar
}

TEST(BarLine, AccuracyIsHiddenWhereItMeansNothing) {
  ProgressState state = example();
  EXPECT_NE(bar_line(state, 200).find("acc"), std::string::npos);
  EXPECT_NE(json_line(state).find("accuracy"), std::string::npos);
  state.accuracy = std::nan("");
  for (const int width : {60, 100, 200}) EXPECT_EQ(bar_line(state, width).find("acc"), std::string::npos) << width;
  EXPECT_EQ(plain_line(state).find("acc"), std::string::npos);
  EXPECT_EQ(json_line(state).find("accuracy"), std::string::npos);
}

/// As in metrics.jsonl.
TEST(BarLine, AccuracyOfBinaryDecisionsHasItsName) {
  ProgressState state = example();
  state.accuracy_name = "binary_accuracy";
  EXPECT_NE(bar_line(state, 200).find(" binary accuracy 0.7125 "), std::string::npos);
  EXPECT_NE(bar_line(state, 80).find(" bin acc 0.71"), std::string::npos);
  EXPECT_NE(plain_line(state).find(" bin acc 0.7125 "), std::string::npos);
  EXPECT_NE(json_line(state).find(R"("binary_accuracy":0.7125)"), std::string::npos);
  EXPECT_EQ(json_line(state).find(R"("accuracy")"), std::string::npos);
  EpochSummary epoch = example_epoch();
  epoch.accuracy_name = "binary_accuracy";
  EXPECT_NE(epoch_line(epoch).find(" bin acc 0.7100 val loss 0.9000 bin acc 0.6800 "), std::string::npos);
  EXPECT_NE(json_line(epoch).find(R"("validation_binary_accuracy":0.68)"), std::string::npos);
  const EvaluatedSummary test{.test = true, .loss = 0.5, .accuracy = 0.75, .accuracy_name = "binary_accuracy"};
  EXPECT_EQ(evaluated_line(test), "test loss 0.5000 bin acc 0.7500");
  EXPECT_NE(json_line(test).find(R"("test_binary_accuracy":0.75)"), std::string::npos);
}

TEST(BarLine, FitsAnyWidth) {
  for (int width = 1; width < 260; ++width)
    EXPECT_LE(display_width(bar_line(example(), width)), static_cast<std::size_t>(width)) << width;
}

TEST(BarLine, KeepsItsWidthWhileNumbersChange) {
  ProgressState small = example(), large = example();
  small.step = 7;
  small.images_per_second = 812;
  small.eta_seconds = 4;
  small.memory_now = small.memory_peak = 12u << 20;
  small.data_wait_share = 0;
  large.eta_seconds = 7500;
  large.data_wait_share = 1;
  for (const int width : {60, 79, 100, 120, 200}) {
    const auto bar_of = [&](const ProgressState& state) {
      const std::string line = bar_line(state, width);
      return std::pair(line.find('['), line.find(']'));
    };
    EXPECT_NE(bar_of(large).first, std::string::npos) << "no bar in " << width << " columns";
    EXPECT_EQ(bar_of(small), bar_of(large)) << width;
  }
}

TEST(BarLine, AnEpochOfNoStepsIsNoDivisionByZero) {
  const std::string line = bar_line({.epoch = 1, .epochs = 1}, 200);
  EXPECT_EQ(count(line, '='), 0) << line;
  EXPECT_NE(line.find("0/0"), std::string::npos) << line;
}

TEST(Progress, TheBarIsDrawnAtOnceAndAtTheLastStepButNotAtEachCall) {
  Output output;
  Progress progress(ProgressMode::bar, output.stream());
  ProgressState state = example();
  for (int i = 0; i < 5; ++i) progress.update(state);  // far less than a redraw's tenth of a second
  EXPECT_EQ(count(output.text(), '\r'), 1);
  state.step = state.steps;
  progress.update(state);
  EXPECT_EQ(count(output.text(), '\r'), 2);
  EXPECT_EQ(count(output.text(), '\n'), 0);
  progress.close();
  progress.close();
  EXPECT_EQ(count(output.text(), '\n'), 1);
}

TEST(Progress, LinesThatStayReplaceTheBar) {
  Output output;
  Progress progress(ProgressMode::bar, output.stream());
  progress.update(example());
  const std::string bar = output.text();
  progress.message("note");
  const std::string added = output.text().substr(bar.size());
  EXPECT_EQ(added.front(), '\r');
  EXPECT_EQ(added.back(), '\n');
  EXPECT_NE(added.find("note"), std::string::npos);
  EXPECT_NE(added.find("\x1b[K"), std::string::npos);  // what is left of the longer bar is cleared
  progress.message("again");
  EXPECT_EQ(output.text(), bar + added + "again\n");  // no bar is open any more
}

TEST(Progress, PlainWritesEpochsAtOnceAndStepsSeldom) {
  Output output;
  Progress progress(ProgressMode::plain, output.stream());
  for (int i = 0; i < 5; ++i) progress.update(example());
  EXPECT_LE(count(output.text(), '\n'), 1);
  const std::string before = output.text();
  progress.epoch_end(example_epoch());
  EXPECT_EQ(output.text(), before + epoch_line(example_epoch()) + "\n");
  EXPECT_NE(epoch_line(example_epoch()).find("0.6800"), std::string::npos);
  EpochSummary unvalidated = example_epoch();
  unvalidated.validated = false;
  EXPECT_EQ(epoch_line(unvalidated).find("0.6800"), std::string::npos);
}

TEST(Progress, LinesOfLogsFitIn80Columns) {
  EXPECT_EQ(epoch_line(example_epoch()), "epoch 2/5 loss 0.8000 acc 0.7100 val loss 0.9000 acc 0.6800 42s");
  EpochSummary epoch = example_epoch();
  ProgressState state = example();
  for (const std::int64_t epochs : {5, 50, 500, 5000, 50000}) {
    epoch.epoch = epoch.epochs = state.epoch = state.epochs = epochs;
    epoch.seconds = static_cast<double>(epochs) * 100;
    state.steps = epochs * 1000;
    EXPECT_LE(display_width(epoch_line(epoch)), 80u) << epoch_line(epoch);
    EXPECT_NE(epoch_line(epoch).find("0.6800"), std::string::npos) << epoch_line(epoch);
    EXPECT_LE(display_width(plain_line(state)), 80u) << plain_line(state);
    EXPECT_NE(plain_line(state).find("loss 0.8123 acc 0.7125"), std::string::npos) << plain_line(state);
  }
}

/// A line with its numbers, sizes and times left out.
std::string form_of(const std::string& line) {
  const std::string timeless = std::regex_replace(line, std::regex(R"(\b[0-9.]+(ms|[dhms])( [0-9]+[hms])?\b)"), "#");
  return std::regex_replace(timeless, std::regex(R"(\b[0-9][0-9.]*[kM]?\b)"), "#");
}

TEST(Progress, LinesOfLogsHaveOneFormWhateverTheirNumbers) {
  const std::string step = form_of(plain_line(example())), epoch = form_of(epoch_line(example_epoch()));
  EXPECT_EQ(step, "epoch #/# loss # acc # step #/# #/s ETA #");
  EXPECT_EQ(epoch, "epoch #/# loss # acc # val loss # acc # #");
  for (const std::int64_t many : {1, 30, 700, 4000, 90000}) {
    ProgressState state = example();
    EpochSummary summary = example_epoch();
    state.epoch = state.epochs = summary.epoch = summary.epochs = many;
    state.steps = many * 1000;
    state.memory_limit = many % 2 == 0 ? 0 : std::uint64_t{37} << 30;
    state.eta_seconds = static_cast<double>(many);
    EXPECT_EQ(form_of(plain_line(state)), step) << plain_line(state);
    EXPECT_EQ(form_of(epoch_line(summary)), epoch) << epoch_line(summary);
    summary.validated = false;
    EXPECT_EQ(form_of(epoch_line(summary)), "epoch #/# loss # acc # #") << epoch_line(summary);
  }
}

TEST(Progress, JsonLinesParse) {
  Output output;
  Progress progress(ProgressMode::json, output.stream());
  progress.update(example());
  progress.message("not for machines");
  progress.epoch_end(example_epoch());
  const std::string text = output.text();
  ASSERT_EQ(count(text, '\n'), 2);
  const auto step = nlohmann::json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(step["step"], 1250);
  EXPECT_EQ(step["images_per_s"], 14812.4);
  EXPECT_EQ(step["memory_peak_bytes"], 1280ULL << 20);
  const auto epoch = nlohmann::json::parse(text.substr(text.find('\n')));
  EXPECT_EQ(epoch["event"], "epoch");
  EXPECT_EQ(epoch["seconds"], 42);
  EXPECT_EQ(epoch["validation_loss"], 0.9);
}

TEST(Progress, NoneWritesNothing) {
  Output output;
  Progress progress(ProgressMode::none, output.stream());
  progress.update(example());
  progress.epoch_end(example_epoch());
  progress.message("note");
  progress.close();
  EXPECT_EQ(output.text(), "");
}

TEST(Progress, WarningsComeInEveryMode) {
  for (const ProgressMode mode : {ProgressMode::bar, ProgressMode::plain, ProgressMode::none}) {
    Output output;
    Progress progress(mode, output.stream());
    progress.warning("steps run unplanned");
    EXPECT_EQ(output.text(), "warning: steps run unplanned\n") << static_cast<int>(mode);
  }
  Output output;
  Progress progress(ProgressMode::json, output.stream());
  progress.warning("the file \xff was not written");
  const auto line = nlohmann::json::parse(output.text());
  EXPECT_EQ(line["event"], "warning");
  EXPECT_NE(line["message"].get<std::string>().find("was not written"), std::string::npos);
}

TEST(Progress, TheEvaluationOnATerminalAndForMachines) {
  const EvaluationState state{.epoch = 2, .epochs = 5, .batch = 30, .batches = 120, .eta_seconds = 90};
  Output bar, json;
  Progress on_terminal(ProgressMode::bar, bar.stream()), for_machines(ProgressMode::json, json.stream());
  on_terminal.evaluation(state);
  on_terminal.close();
  for_machines.evaluation(state);
  EXPECT_EQ(bar.text(), "\repoch 2/5 evaluating: batch 30/120 ETA 1m 30s\x1b[K\n");
  const auto event = nlohmann::json::parse(json.text());
  EXPECT_EQ(event["event"], "evaluation");
  EXPECT_EQ(event["batch"], 30);
  EXPECT_EQ(event["batches"], 120);
}

TEST(Progress, SamplesThatAreReadOnATerminalAndSeldomElsewhere) {
  const ReadingState state{.set = "train", .read = 1280, .samples = 50000};
  EXPECT_EQ(reading_line(state), "reading train: 1,280 of 50,000 samples");
  EXPECT_EQ(nlohmann::json::parse(json_line(state)),
            (nlohmann::json{{"event", "reading"}, {"set", "train"}, {"read", 1280}, {"samples", 50000}}));
  Output bar, plain;
  Progress on_terminal(ProgressMode::bar, bar.stream()), in_a_log(ProgressMode::plain, plain.stream());
  on_terminal.reading(state);
  on_terminal.close();
  in_a_log.reading(state);  // within the first seconds
  EXPECT_EQ(bar.text(), "\rreading train: 1,280 of 50,000 samples\x1b[K\n");
  EXPECT_EQ(plain.text(), "");
}

TEST(Progress, RunsOfASweepBeginAndEnd) {
  SweepRunState state{.run = 2, .runs = 6, .setting = "learning_rate=0.1, seed=43"};
  EXPECT_EQ(run_begin_line(state), "run 2/6: learning_rate=0.1, seed=43");
  state.seconds = 7.25;
  state.eta_seconds = 29;
  state.values = {{"accuracy", 0.93125}, {"loss", 0.25}};
  EXPECT_EQ(run_end_line(state), "run 2/6: accuracy 0.9313, loss 0.2500 in 7.2s, ETA 29s");
  Output machines, nobody;
  Progress json(ProgressMode::json, machines.stream()), none(ProgressMode::none, nobody.stream());
  for (Progress* progress : {&json, &none}) {
    progress->run_begin(state);
    progress->run_end(state);
  }
  EXPECT_EQ(nobody.text(), "");
  const std::string text = machines.text();
  const nlohmann::json begin = nlohmann::json::parse(text.substr(0, text.find('\n')));
  const nlohmann::json end = nlohmann::json::parse(text.substr(text.find('\n') + 1));
  EXPECT_EQ(begin["event"], "run_begin");
  EXPECT_EQ(begin["setting"], "learning_rate=0.1, seed=43");
  EXPECT_EQ(end["event"], "run_end");
  EXPECT_EQ(end["accuracy"], 0.93125);
  EXPECT_EQ(end["eta_seconds"], 29);
  state.run = 6;
  EXPECT_TRUE(run_end_line(state).ends_with("in 7.2s")) << "nothing is left";
}

TEST(Progress, AnEpochThatWasOnlyEvaluatedShowsNoTraining) {
  EpochSummary epoch = example_epoch();
  epoch.trained = false;
  EXPECT_EQ(epoch_line(epoch).find("epoch 2/5 val loss 0.9000"), 0u) << epoch_line(epoch);
  EXPECT_FALSE(nlohmann::json::parse(json_line(epoch)).contains("loss"));
}

TEST(ParseProgressMode, KnowsTheModesAndFiles) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(parse_progress_mode("auto", file), ProgressMode::plain);  // a file is no terminal
  EXPECT_EQ(parse_progress_mode("bar", file), ProgressMode::bar);
  EXPECT_EQ(parse_progress_mode("plain", file), ProgressMode::plain);
  EXPECT_EQ(parse_progress_mode("json", file), ProgressMode::json);
  EXPECT_EQ(parse_progress_mode("none", file), ProgressMode::none);
  try {
    parse_progress_mode("fancy", file);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'fancy'"), std::string::npos) << error.what();
  }
  std::fclose(file);
}

}  // namespace
}  // namespace bantam::cli::progress_test
