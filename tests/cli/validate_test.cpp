// `bantam validate`, and `train`'s trials, as users run them.
#include "tests/cli/program.h"

namespace bantam::cli::validate_test {
namespace {

class Validate : public ProgramTest {
 protected:
  Validate() { write_tiny_config(); }
  /// tiny.yaml with texts replaced.
  void write_changed(const std::vector<std::pair<std::string, std::string>>& changes) const {
    std::string text = read("tiny.yaml");
    for (const auto& [from, to] : changes) {
      ASSERT_NE(text.find(from), std::string::npos) << from;
      text.replace(text.find(from), from.size(), to);
    }
    write("wrong.yaml", text);
  }
  /// Lines of the errors that are told, and all that is told.
  std::vector<std::int64_t> lines_of_errors() const {
    const Outcome outcome = run({"validate", "wrong.yaml", "--json"});
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    const nlohmann::json json = outcome.last_json();
    EXPECT_EQ(json.at("valid"), false);
    std::vector<std::int64_t> lines;
    for (const auto& error : json.at("errors")) lines.push_back(error.at("line"));
    return lines;
  }
};

TEST_F(Validate, SaysThatNothingIsWrong) {
  const Outcome outcome = run({"validate", "tiny.yaml"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "tiny.yaml: nothing is wrong\n");
  EXPECT_EQ(run({"validate", "tiny.yaml", "--json"}).last_json().at("errors").size(), 0u);
}

/// What `train` says before its first update, `validate` says too.
TEST_F(Validate, TellsWhatTrainWouldWarnOf) {
  write_changed({{"- normalize", "# - normalize"}, {"batch_norm: {", "batch_norm: {momentum: 0.999, "}});
  const Outcome outcome = run({"validate", "wrong.yaml"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "wrong.yaml: nothing is wrong; 2 warnings\n");
  const Outcome trained = run({"train", "wrong.yaml", "--dry-run", "--progress", "plain"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  const nlohmann::json warnings = run({"validate", "wrong.yaml", "--json"}).last_json().at("warnings");
  ASSERT_EQ(warnings.size(), 2u);
  for (const auto& warning : warnings) {
    const auto text = warning.get<std::string>();
    EXPECT_NE(outcome.err.find("wrong.yaml: warning: " + text), std::string::npos) << outcome.err;
    EXPECT_NE(trained.err.find(text), std::string::npos) << text << "\n" << trained.err;
  }
}

TEST_F(Validate, TellsWhatTrainWouldRefuse) {
  const auto refused = [&](const std::vector<std::string>& overrides, const std::string& part) {
    std::vector<std::string> validate = {"validate", "tiny.yaml"}, train = {"train", "tiny.yaml", "--run-dir", "r"};
    for (std::vector<std::string>* words : {&validate, &train})
      words->insert(words->end(), overrides.begin(), overrides.end());
    const Outcome found = run(validate), ended = run(train);
    EXPECT_EQ(found.code, 2) << found.out;
    EXPECT_NE(ended.code, 0);
    EXPECT_NE(found.err.find(part), std::string::npos) << found.err;
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
  };
  write("other.safetensors", "no weights");
  refused({"model.weights=other.safetensors"}, "other.safetensors");
  refused({"model.weights=missing.safetensors"}, "missing.safetensors");
  refused({"train.initial_weights=missing.safetensors"}, "missing.safetensors");
  refused({"memory.budget=1KiB"}, "does not fit");
  refused({"train.accumulate=1000", "train.replicas=2"}, "fewer than an update's");
}

TEST_F(Validate, TellsAllErrorsInTheOrderOfTheFile) {
  write_changed({{"seed: 7", "seed: seven"},
                 {"shuffle: {}", "shufle: {}"},
                 {"drop_last: true", "drop_first: true"},
                 {"kernel: 3, stride: 2, padding: same", "kernal: 3, stride: two"},
                 {"rate: 0.2", "rate: 2"},
                 {"epochs: 1", "epochs: none"},
                 {"learning_rate", "learning_rat"}});
  const Outcome outcome = run({"validate", "wrong.yaml"});
  EXPECT_EQ(outcome.code, 2);
  for (const char* part :
       {"wrong.yaml:2:7: error: seed: expected an integer", "unknown pipeline stage 'shufle'; did you mean 'shuffle'?",
        "unknown key 'drop_first'", "did you mean 'kernel'?", "dropout.rate: expected a number", "epochs: expected",
        "did you mean 'learning_rate'?", "wrong.yaml: 7 errors\n"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << "\n" << outcome.err;
  const std::vector<std::int64_t> lines = lines_of_errors();
  EXPECT_EQ(lines.size(), 7u) << outcome.err;
  EXPECT_TRUE(std::ranges::is_sorted(lines));
}

/// A layer that is wrong says nothing of those after it: their shapes are not known.
TEST_F(Validate, TellsNoErrorsThatFollowFromOthers) {
  write_changed({{"conv2d: {filters: 8", "conv3d: {filters: 8"}, {"- flatten\n", "- flaten\n"}});
  EXPECT_EQ(lines_of_errors().size(), 2u) << run({"validate", "wrong.yaml"}).err;
  write_changed({{"stride: 2, padding: same, bias: false", "stride: 99, padding: smae"}});
  EXPECT_EQ(lines_of_errors().size(), 1u) << run({"validate", "wrong.yaml"}).err;
}

TEST_F(Validate, LooksAtDataAndModelTogether) {
  write_changed({{"units: 10", "units: 9"}});
  const Outcome outcome = run({"validate", "wrong.yaml"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("but the data have 10 classes"), std::string::npos) << outcome.err;
}

TEST_F(Validate, TellsErrorsOfOverridesAndOfTextsThatAreNoYaml) {
  const Outcome outcome = run({"validate", "tiny.yaml", "train.epochs=0", "seed=-1"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("tiny.yaml: 2 errors"), std::string::npos) << outcome.err;
  write("broken.yaml", "model: [\n");
  EXPECT_EQ(run({"validate", "broken.yaml"}).code, 2);
  EXPECT_EQ(run({"validate", "none.yaml"}).code, 2);
}

/// What `validate` tells first is what `train` ends with.
TEST_F(Validate, AgreesWithTrain) {
  write_changed({{"learning_rate", "learning_rat"}});
  const Outcome checked = run({"validate", "wrong.yaml"}), trained = run({"train", "wrong.yaml"});
  EXPECT_EQ(trained.code, 2);
  EXPECT_TRUE(checked.err.starts_with(trained.err)) << checked.err << trained.err;
}

TEST_F(Validate, DryRunTrainsAndKeepsNothing) {
  const Outcome outcome = run({"train", "tiny.yaml", "--dry-run", "--threads", "1", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.last_json().at("updates"), 0);
  EXPECT_EQ(outcome.last_json().at("updates_per_epoch"), 16);
  EXPECT_GT(outcome.last_json().at("planned_peak_bytes"), 0);
  EXPECT_FALSE(std::filesystem::exists(path("runs")));
  EXPECT_EQ(run({"train", "tiny.yaml", "--dry-run", "data.format=cifar10", "data.path=none"}).code, 2);
  EXPECT_EQ(run({"train", "tiny.yaml", "--dry-run", "--run-dir", "r"}).code, 2);
}

TEST_F(Validate, FastDevRunTrainsAFewUpdates) {
  const Outcome outcome = run({"train", "tiny.yaml", "--fast-dev-run", "2", "--threads", "1", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.last_json().at("updates"), 2);
  EXPECT_TRUE(outcome.last_json().contains("validation_loss"));
  EXPECT_FALSE(std::filesystem::exists(path("runs")));
  const Outcome words = run({"train", "tiny.yaml", "--fast-dev-run", "2", "--threads", "1", "-q"});
  EXPECT_NE(words.out.find("2 updates: loss "), std::string::npos) << words.out;
  EXPECT_NE(words.out.find("; 32 validation samples: loss "), std::string::npos) << words.out;
  EXPECT_EQ(run({"train", "tiny.yaml", "--fast-dev-run", "0"}).code, 2);
  // Validation samples of the training set's leave the test samples for the end: no more batches of them.
  const Outcome tested =
      run({"train", "tiny.yaml", "--fast-dev-run", "2", "--threads", "1", "-q", "data.validation={split: 0.5}"});
  EXPECT_NE(tested.out.find("; 32 validation samples: loss "), std::string::npos) << tested.out << tested.err;
  EXPECT_NE(tested.out.find("; 32 test samples: loss "), std::string::npos) << "of 40\n" << tested.out;
}

TEST_F(Validate, FastDevRunOfARunThatMayStopEarly) {
  for (const char* evaluate : {"train.evaluate=true", "train.evaluate.views={flip: true}"}) {
    const Outcome outcome = run({"train", "tiny.yaml", "--fast-dev-run", "2", "--threads", "1", "--json", evaluate,
                                 "train.stop_early={patience: 3}"});
    EXPECT_EQ(outcome.code, 0) << evaluate << outcome.err;
  }
  const Outcome best = run({"train", "tiny.yaml", "--fast-dev-run", "2", "--threads", "1", "--json",
                            "checkpoint.best={metric: loss}", "train.stop_early={patience: 3, restore_best: true}"});
  EXPECT_EQ(best.code, 0) << best.err;
}

/// The whole set would be written before the first update.
TEST_F(Validate, TrialsPackNoSamples) {
  std::filesystem::create_directory(path("temporary"));
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  setenv("TMPDIR", path("temporary").c_str(), 1);
  const pid_t trial = start({"train", "tiny.yaml", "--fast-dev-run", "1000000", "--threads", "1", "--progress", "none",
                             "train.epochs=1000000", "data.pipeline.0={cache: disk}"});
  before != nullptr ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
  const auto files = [&](const std::string& beginning) {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path("temporary")))
      if (entry.path().filename().string().starts_with(beginning)) found.push_back(entry.path().string());
    return found;
  };
  EXPECT_TRUE(wait_until([&] {
    const std::vector<std::string> log = files("metrics.jsonl");
    return !log.empty() && std::filesystem::file_size(log[0]) > 0;
  }));
  EXPECT_EQ(files("samples-"), std::vector<std::string>{});
  kill(trial, SIGTERM);
  EXPECT_EQ(wait(trial).code, 75);
  EXPECT_TRUE(std::filesystem::is_empty(path("temporary"))) << "nothing is kept";
}

TEST_F(Validate, PrintConfigHasEveryDefault) {
  const Outcome outcome = run({"train", "tiny.yaml", "--print-config", "train.epochs=3"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"epochs: 3\n", "beta1:", "checkpoint:", "keep_last: 2"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  write("printed.yaml", outcome.out);
  EXPECT_EQ(run({"train", "printed.yaml", "--print-config"}).out, outcome.out) << "it is a configuration again";
}

}  // namespace
}  // namespace bantam::cli::validate_test
