// Fitting as users meet it: `auto`, a budget, running out of memory, and going on all the same.
#include "tests/cli/program.h"

namespace bantam::cli::fit_test {
namespace {

class Fit : public ProgramTest {
 protected:
  Fit() { write_tiny_config(); }
  /// tiny.yaml with blocks of convolutions, which keep more than they give.
  void write_deep_config() const {
    std::string text = read("tiny.yaml");
    const std::size_t begin = text.find("    - conv2d"), end = text.find("    - dropout");
    std::string layers = "    - conv2d: {filters: 8, kernel: 3, stride: 2, padding: same}\n";
    for (const char* name : {"b1", "b2", "b3", "b4"})
      layers += std::string("    - block: {name: ") + name +
                ", body: [conv2d: {filters: 8, kernel: 3, padding: same}, relu, conv2d: {filters: 8, kernel: 3, "
                "padding: same}, relu]}\n";
    write("deep.yaml", text.replace(begin, end - begin, layers));
  }
  static void expect_narrow(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
};

TEST_F(Fit, AutoIsWrittenIntoTheRun) {
  const Outcome outcome = run({"train", "tiny.yaml", "data.pipeline.batch.size=auto", "memory.limits={cpu: 12MiB}",
                               "--run-dir", "r", "--json", "--progress", "plain", "--threads", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("the largest that fits 12.0 MiB"), std::string::npos) << outcome.err;
  const std::string config = read("r/config.yaml");
  const std::size_t size = config.find("batch: {size: ");
  ASSERT_NE(size, std::string::npos) << config;
  EXPECT_NE(config.substr(size + 14, 1), "a") << "auto is resolved: " << config;
}

TEST_F(Fit, AutoTakesNoMoreThanGainsThroughput) {
  const std::vector<std::string> plan = {"plan", "tiny.yaml", "data.pipeline.batch.size=auto",
                                         "data.train_samples=40000"};
  const auto batch = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = plan;
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.push_back("--json");
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.last_json()["batch"].get<std::int64_t>();
  };
  const std::int64_t enough = batch({});
  EXPECT_GE(enough, 16);
  EXPECT_LE(enough, 4096) << "more gains no throughput";
  EXPECT_GT(batch({"memory.limits={cpu: 1GiB}"}), enough) << "of bytes that were named, the largest that fits";
  EXPECT_EQ(batch({"data.pipeline.batch.max=10000"}), 10000) << "what the user says stands";
  EXPECT_GE(batch({"train.accumulate=8"}), 1);
  EXPECT_LE(batch({"train.accumulate=8"}), enough) << "an update's share of a micro-batch is less";
  EXPECT_NE(run(plan).out.find("a larger one is next to no faster"), std::string::npos);
}

TEST_F(Fit, AutoSaysWhatWasChosenAndWhy) {
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"train",       "tiny.yaml",  "--run-dir", "r",
                                    "--overwrite", "--progress", "plain",     "data.pipeline.batch.size=auto"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    expect_narrow(outcome.err.substr(0, outcome.err.find("run folder")));
    return outcome.err;
  };
  const std::string whole = said({});
  EXPECT_NE(whole.find("batch size 256: all of the training images"), std::string::npos) << whole;
  EXPECT_NE(whole.find("warning: only 1 update an epoch with this batch size;"), std::string::npos) << whole;
  EXPECT_NE(whole.find("batch: {size: auto, max: 8} makes 32"), std::string::npos) << whole;
  const std::string bound = said({"data.pipeline.batch.max=12"});
  EXPECT_NE(bound.find("batch size 8: the largest multiple of 8 up to its max"), std::string::npos) << bound;
  EXPECT_EQ(bound.find("warning"), std::string::npos) << bound;
  const std::string quiet = train("r", {"data.pipeline.batch.size=auto", "--overwrite"}).err;
  EXPECT_EQ(quiet.find("batch size 256"), std::string::npos) << "--progress none: " << quiet;
  EXPECT_NE(quiet.find("warning: only 1 update an epoch"), std::string::npos) << "--progress none: " << quiet;
}

TEST_F(Fit, AutoLeavesTheSharesOfTheDeviceAlone) {
  const Outcome outcome = train("r", {"data.pipeline.batch.size=auto", "data.train_samples=2000",
                                      "memory={limits: {cpu: 40MiB}, logical: {cpu: [18MiB]}}"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(Fit, ABudgetIsKept) {
  write_deep_config();
  const auto row = [&](const std::string& memory) {
    return run({"plan", "deep.yaml", "data.pipeline.batch.size=128", "--memory", memory, "--json"});
  };
  const auto free = row("64GiB").last_json();
  EXPECT_EQ(free["recompute"], "none");
  bool chosen = false;
  for (int percent = 95; percent > 40 && !chosen; percent -= 5) {
    const auto bytes = free["run"]["pool_bytes"].get<std::uint64_t>() * static_cast<std::uint64_t>(percent) / 100;
    const Outcome outcome = row(std::to_string(bytes));
    const auto json = outcome.last_json();
    EXPECT_EQ(outcome.code, json["fits"].get<bool>() ? 0 : 4);
    if (!json["fits"].get<bool>() || json["recompute"] == "none") continue;
    chosen = true;
    EXPECT_LE(json["peak_bytes"].get<std::uint64_t>(), bytes);
    EXPECT_GT(json["predicted_extra_percent"].get<double>(), 0.0);
    const Outcome measured = run({"bench", "step", "deep.yaml", "--batch-sizes", "128", "--recompute", "none,auto",
                                  "memory.budget=" + json["pool_bytes"].dump(), "--seconds", "0.01", "--threads", "1"});
    EXPECT_EQ(measured.code, 0) << measured.err;
    EXPECT_NE(measured.out.find("% time predicted"), std::string::npos) << measured.out;
    EXPECT_NE(measured.out.find("% measured"), std::string::npos) << measured.out;
    expect_narrow(measured.out);
  }
  EXPECT_TRUE(chosen);
}

TEST_F(Fit, OutOfMemoryNamesChangesThatFit) {
  const Outcome outcome = train("r", {"data.pipeline.batch.size=256", "recompute=none", "memory.limits={cpu: 8MiB}"});
  EXPECT_EQ(outcome.code, 4);
  for (const char* part : {"the limit of cpu is too small: 8.00 MiB", "needed at least", "largest holders",
                           "Each of these fits:", "accumulate:", "-> a pool of ", "the same effective batch",
                           "norm then sees", "The plan needs a pool of ", "data set and batches made ahead (input)"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " in " << outcome.err;
  expect_narrow(outcome.err);
  EXPECT_EQ(outcome.err.find("it needs a limit of"), std::string::npos) << "said once: " << outcome.err;
  // And the change that is named does fit.
  const std::size_t size = outcome.err.find("batch: {size: ") + 14;
  const std::string batch = outcome.err.substr(size, outcome.err.find('}', size) - size);
  const std::size_t times = outcome.err.find("accumulate: ") + 12;
  const std::string accumulate = outcome.err.substr(times, outcome.err.find('}', times) - times);
  const Outcome changed = train("r2", {"data.pipeline.batch.size=" + batch, "train.accumulate=" + accumulate,
                                       "recompute=none", "memory.limits={cpu: 8MiB}"});
  EXPECT_EQ(changed.code, 0) << changed.err;
  EXPECT_EQ(std::stoi(batch) * std::stoi(accumulate), 256);
}

/// Words and single spaces only, as one line.
std::string flat(const std::string& text) {
  std::string line;
  std::istringstream words(text);
  for (std::string word; words >> word;) line += word + " ";
  return line;
}

TEST_F(Fit, OutOfMemoryBlamesTheDataSetWhereItIsToBlame) {
  const std::vector<std::string> tight = {"data.train_samples=8000", "memory.limits={cpu: 16MiB}"};
  const Outcome outcome = train("r", tight);
  EXPECT_EQ(outcome.code, 4);
  expect_narrow(outcome.err);
  const std::string text = flat(outcome.err);
  EXPECT_NE(text.find("The data set needs 23.6 MiB of these "), std::string::npos) << text;
  EXPECT_NE(text.find("23.5 MiB for 8,000 training images and 120 KiB for 40 validation images"), std::string::npos)
      << text;
  // And what is named does fit; much more would not.
  ASSERT_NE(text.find("Each of these fits: cache: off -> a pool of "), std::string::npos) << text;
  std::vector<std::string> uncached = tight;
  uncached.push_back("data.pipeline=[{cache: off}, {batch: {size: 16}}]");
  EXPECT_EQ(train("u", uncached).code, 0);
  const std::size_t limit = text.find("data: {limit: ");
  ASSERT_NE(limit, std::string::npos) << text;
  const std::int64_t images = std::stoll(text.substr(limit + 14));
  const auto with = [&](std::int64_t count) {
    std::vector<std::string> all = tight;
    all.insert(all.end(), {"data.limit=" + std::to_string(count), "--overwrite"});
    return train("r", all).code;
  };
  EXPECT_EQ(with(images), 0);
  EXPECT_EQ(with(images * 11 / 10), 4);
  // Where the step is to blame, nothing is said of the data; where nothing of them helps alone, that is said.
  const Outcome step = train("s", {"data.pipeline.batch.size=256", "recompute=none", "memory.limits={cpu: 8MiB}"});
  EXPECT_EQ(flat(step.err).find("The data set takes"), std::string::npos) << step.err;
  const Outcome both = train("s", {"data.train_samples=8000", "data.test_samples=8000", "memory.limits={cpu: 16MiB}"});
  EXPECT_NE(flat(both.err).find("(data: {limit: N}) alone do not make it fit. This fits: cache: off"),
            std::string::npos)
      << both.err;
}

TEST_F(Fit, ABudgetThatCannotBeMetIsOneOfTheWholeRun) {
  write_deep_config();
  const Outcome outcome = run({"train", "deep.yaml", "data.pipeline.batch.size=128", "memory.budget=2MiB"});
  EXPECT_EQ(outcome.code, 4);
  std::string text;  // in one line
  std::istringstream words(outcome.err);
  for (std::string word; words >> word;) text += word + " ";
  const std::string found = "batch size 128 does not fit 2.00 MiB: the least found is a pool of ";
  const std::size_t least = text.find(found);
  ASSERT_NE(least, std::string::npos) << text;
  EXPECT_GT(std::stod(text.substr(least + found.size())), 2.0) << text;
  EXPECT_NE(text.find("Without recompute, it needs a budget of"), std::string::npos) << text;
  EXPECT_EQ(text.find("it needs a limit of"), std::string::npos) << text;
}

TEST_F(Fit, BenchExplainsWhatDoesNotFit) {
  const Outcome outcome = run({"bench", "memory", "tiny.yaml", "--batch-sizes", "2048", "memory.limits={cpu: 16MiB}",
                               "recompute=none", "--seconds", "0.01", "--threads", "1"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_NE(outcome.out.find("does not fit (needs"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.err.find("Each of these fits:"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("it needs a limit of"), std::string::npos) << outcome.err;
  expect_narrow(outcome.out + outcome.err);
}

TEST_F(Fit, OnOomGoesOn) {
  const std::vector<std::string> tight = {"data.pipeline.batch.size=256", "recompute=none",
                                          "memory.limits={cpu: 8MiB}"};
  std::vector<std::string> arguments = {"train",      "tiny.yaml", "--run-dir", "r",
                                        "--progress", "plain",     "--threads", "1"};
  arguments.insert(arguments.end(), tight.begin(), tight.end());
  const auto with = [&](const std::string& policy) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), {"memory.on_oom=" + policy, "--overwrite"});
    return run(all);
  };
  const Outcome refused = with("accumulate");  // tiny has batch normalisation
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("accumulate_with_batch_norm"), std::string::npos) << refused.err;
  const Outcome done = with("accumulate_with_batch_norm");
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.err.find("is repeated in micro-batches of 128"), std::string::npos) << done.err;
  const std::size_t line = done.err.find("out of memory: update 1 of epoch 1");
  ASSERT_NE(line, std::string::npos) << done.err;
  EXPECT_LE(done.err.find('\n', line) - line, 80u);
  EXPECT_EQ(done.err.find("out of memory", line + 1), std::string::npos) << done.err;
  arguments[5] = "none";
  const Outcome unseen = with("accumulate_with_batch_norm");
  EXPECT_EQ(unseen.err.find("warning: out of memory: update 1 of epoch 1 is repeated"), 0u)
      << "a warning comes with --progress none, too: " << unseen.err;
  // Halved twice, and told once.
  arguments.back() = "memory.limits={cpu: 6MiB}";
  const Outcome twice = with("accumulate_with_batch_norm");
  EXPECT_EQ(twice.code, 0) << twice.err;
  const std::size_t told = twice.err.find("out of memory: update 1 of epoch 1 is repeated in micro-batches of 64");
  ASSERT_NE(told, std::string::npos) << twice.err;
  EXPECT_EQ(twice.err.find("out of memory"), told) << twice.err;
  EXPECT_EQ(twice.err.find("out of memory", told + 1), std::string::npos) << twice.err;
}

}  // namespace
}  // namespace bantam::cli::fit_test
