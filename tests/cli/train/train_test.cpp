// `bantam train`: the files and the output of a run, stopping and resuming.
#include "tests/cli/program.h"

namespace bantam::cli::train_test {
namespace {

class Train : public ProgramTest {
 protected:
  Train() { write_tiny_config(); }
};

TEST_F(Train, LeavesConfigMetricsWeightsAndState) {
  const Outcome outcome = train("run", {"train.epochs=2"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json end = outcome.last_json();
  EXPECT_EQ(end["epochs"], 2);
  EXPECT_EQ(end["updates"], 32);
  EXPECT_EQ(end["run_dir"], "run");
  EXPECT_EQ(end["precision"], "float32");
  EXPECT_GT(end["seconds"].get<double>(), 0.0);
  EXPECT_GT(end["images_per_s"].get<double>(), 0.0);
  EXPECT_TRUE(end["held_out"].get<bool>());
  std::uint64_t sum = 0;
  for (const auto& [category, bytes] : end["by_category"].items()) sum += bytes.get<std::uint64_t>();
  EXPECT_EQ(sum, end["peak_bytes"].get<std::uint64_t>());
  for (const char* file :
       {"run.json", "config.yaml", "metrics.jsonl", "weights.safetensors",
        "checkpoints/update-00000032/state.safetensors", "checkpoints/update-00000032/weights.safetensors",
        "checkpoints/update-00000032/checkpoint.json"})
    EXPECT_TRUE(std::filesystem::exists(path("run") / file)) << file;

  const auto lines = read_lines("run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 34u);  // 2 epochs of 16 updates and a line of their own
  EXPECT_EQ(lines[0]["kind"], "update");
  EXPECT_EQ(lines[0]["samples"], 16);
  EXPECT_EQ(lines[15]["update"], 16);
  EXPECT_EQ(lines[16]["kind"], "epoch");
  EXPECT_EQ(lines[16]["validation_samples"], 40);
  EXPECT_EQ(lines[33]["validation_accuracy"], end["accuracy"]);
  EXPECT_EQ(lines[33]["validation_loss"], end["loss"]);
  EXPECT_LT(lines[33]["loss"].get<double>(), lines[16]["loss"].get<double>()) << "it learns";
  double loss = 0;
  for (int i = 0; i < 16; ++i) loss += lines[static_cast<std::size_t>(i)]["loss"].get<double>() / 16;
  EXPECT_NEAR(lines[16]["loss"].get<double>(), loss, 1e-9)
      << "an epoch's loss is the mean of its updates', to rounding";
}

TEST_F(Train, TheResolvedConfigurationGivesTheSameRun) {
  ASSERT_EQ(train("first").code, 0);
  const Outcome again =
      run({"train", "first/config.yaml", "--run-dir", "again", "--threads", "1", "--json", "--progress", "none"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read("first/weights.safetensors"), read("again/weights.safetensors"));
  EXPECT_NE(read("first/config.yaml").find("device: cpu"), std::string::npos);
  EXPECT_NE(read("first/config.yaml").find("precision: float32"), std::string::npos) << "auto is written out";
}

TEST_F(Train, SaysItInWordsToo) {
  const Outcome outcome = run({"train", "tiny.yaml", "--run-dir", "run", "--threads", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part :
       {"tiny: 1 epoch, 16 updates", "validation", "images/s", "waiting for data", "to the first updates' results",
        "in use at the peak", "parameter", "activation", "run/", "weights.safetensors"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " is missing in:\n" << outcome.out;
  EXPECT_NE(outcome.err.find("epoch 1/1"), std::string::npos) << "plain progress, as stderr is a file: " << outcome.err;
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos);
}

TEST_F(Train, SaysHowLongTheStartTook) {
  const auto result = train("run").last_json();
  EXPECT_GT(result["start_seconds"], 0.0);
  EXPECT_LT(result["start_seconds"], result["seconds"]);
}

TEST_F(Train, ProgressForMachines) {
  const Outcome outcome =
      run({"train", "tiny.yaml", "--run-dir", "run", "--threads", "1", "--progress", "json", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.err);
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) last = nlohmann::json::parse(line);
  EXPECT_EQ(last["event"], "epoch");
  EXPECT_EQ(last["epoch"], 1);
}

TEST_F(Train, LogsAsOftenAsSaid) {
  ASSERT_EQ(train("run", {"train.log_every=6"}).code, 0);
  const auto lines = read_lines("run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 4u);  // updates 6, 12, 16 and the epoch
  EXPECT_EQ(lines[1]["update"], 12);
  EXPECT_EQ(lines[1]["samples"], 96);
  EXPECT_EQ(lines[2]["update"], 16);
  EXPECT_EQ(lines[2]["samples"], 64);
}

TEST_F(Train, AccumulatesBatchesToUpdates) {
  const Outcome outcome = train("run", {"train.accumulate=3"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.last_json()["batch"], 48);
  const auto lines = read_lines("run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 7u);  // 16 batches: five updates of three and one of the last batch, and the epoch
  EXPECT_EQ(lines[4]["samples"], 48);
  EXPECT_EQ(lines[5]["samples"], 16);
}

TEST_F(Train, CannotGoOnInsideAnEpochWithOtherBatches) {
  // One epoch of 750 updates: the signal comes after the first metrics, some 64 updates in.
  const pid_t child = start({"train", "tiny.yaml", "--run-dir", "run", "--threads", "1", "data.train_samples=12000"});
  ASSERT_TRUE(wait_until(
      [&] { return std::filesystem::exists(path("run/metrics.jsonl")) && !read("run/metrics.jsonl").empty(); }));
  kill(child, SIGINT);
  const Outcome stopped = wait(child);
  ASSERT_EQ(stopped.code, 130) << stopped.err;
  EXPECT_NE(stopped.out.find("bantam train --resume run"), std::string::npos) << stopped.out;
  const std::string before = read("run/config.yaml");
  const Outcome changed = run({"train", "--resume", "run", "data.pipeline.batch.size=8"});
  EXPECT_EQ(changed.code, 2) << changed.err;
  EXPECT_NE(changed.err.find("data.pipeline.batch.size: was 16, is 8"), std::string::npos) << changed.err;
  const Outcome refused = run({"train", "--resume", "run", "data.pipeline.batch.size=8", "--accept-changes"});
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_NE(refused.err.find("cannot go on with 8"), std::string::npos) << refused.err;
  EXPECT_NE(run({"train", "--resume", "run", "--seed", "9"}).err.find("seed: was 7, is 9"), std::string::npos);
  EXPECT_EQ(run({"train", "--resume", "run", "data.limit=11000"}).code, 2);
  EXPECT_EQ(run({"train", "--resume", "run", "memory.limits={cpu: 1MiB}"}).code, 4);
  EXPECT_EQ(read("run/config.yaml"), before);
  // A half-written line, of a run that was killed, is cut off; every line stays whole.
  std::ofstream(path("run/metrics.jsonl"), std::ios::app) << "{\"kind\":\"upd";
  ASSERT_EQ(run({"train", "--resume", "run", "--threads", "1", "--progress", "none"}).code, 0);
  int updates = 0;
  for (const auto& line : read_lines("run/metrics.jsonl")) updates += line["kind"] == "update";
  EXPECT_EQ(updates, 750);
}

TEST_F(Train, ResumeOfAnotherProgramsRunNamesThatProgram) {
  ASSERT_EQ(train("run").code, 0);
  nlohmann::json record = nlohmann::json::parse(read("run/run.json"));
  record["executable"] = "/opt/mine/train_mine";
  write("run/run.json", record.dump());
  std::string config = read("run/config.yaml");
  const std::size_t dropout = config.find("dropout");
  ASSERT_NE(dropout, config.npos);
  write("run/config.yaml", config.replace(dropout, 7, "my_noise"));
  const Outcome refused = run({"train", "--resume", "run", "train.epochs=2"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("my_noise"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("/opt/mine/train_mine"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("docs/EXTENDING.md"), std::string::npos) << refused.err;
}

TEST_F(Train, SharesAndReservedPoolsChangeNoBit) {
  ASSERT_EQ(train("plain").code, 0);
  const auto same_as_plain = [&](const std::string& name, const std::vector<std::string>& more) {
    const Outcome outcome = train(name, more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(read(name + "/weights.safetensors"), read("plain/weights.safetensors")) << name;
    return outcome.last_json();
  };
  const auto shared = same_as_plain("share", {"device=cpu/1", "memory.logical={cpu: [16MiB, 64MiB]}"});
  EXPECT_EQ(shared["device"], "cpu/1");
  EXPECT_LE(shared["pool_bytes"].get<std::uint64_t>(), 64u << 20);
  // The data set lies on the whole CPU, in the plan as in the run.
  EXPECT_EQ(shared["peak_bytes"], shared["planned_peak_bytes"]);
  EXPECT_EQ(shared["pool_bytes"], shared["planned_pool_bytes"]);
  (void)same_as_plain("reserved", {"memory.growth=false"});
  EXPECT_GT(shared["process_bytes"].get<std::uint64_t>(), shared["pool_bytes"].get<std::uint64_t>());
  EXPECT_EQ(shared["process_method"], "resident set");
}

TEST_F(Train, WithoutGrowthThePlannedPoolHasToBeThereAtOnce) {
  const Outcome refused = train("refused", {"memory.growth=false", "memory.on_oom=accumulate_with_batch_norm",
                                            "recompute=none", "memory.limits={cpu: 64KiB}"});
  EXPECT_EQ(refused.code, 4);
  EXPECT_NE(refused.err.find("at once"), std::string::npos) << refused.err;
}

TEST_F(Train, AResultThatCannotBeWrittenIsAnError) {
  const std::string program = std::getenv("BANTAM_PROGRAM") != nullptr ? std::getenv("BANTAM_PROGRAM") : BANTAM_PROGRAM;
  const int status =
      std::system((program + " summary " + path("tiny.yaml").string() + " > /dev/full 2> /dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST_F(Train, AReaderOfTheProgressMayLeave) {
  const std::string program = std::getenv("BANTAM_PROGRAM") != nullptr ? std::getenv("BANTAM_PROGRAM") : BANTAM_PROGRAM;
  const std::string command = "cd " + path(".").string() + " && { " + program +
                              " train tiny.yaml --run-dir run --threads 1 --progress plain train.epochs=20 2>&1 > out; "
                              "echo $? > code; } | true";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read("code"), "0\n");
  EXPECT_TRUE(std::filesystem::exists(path("run/weights.safetensors")));
}

TEST_F(Train, ReadsItsConfigurationFromAPipe) {
  const std::string program = std::getenv("BANTAM_PROGRAM") != nullptr ? std::getenv("BANTAM_PROGRAM") : BANTAM_PROGRAM;
  const std::string command = "cd " + path(".").string() + " && cat tiny.yaml | " + program +
                              " train /dev/stdin --run-dir run --threads 1 --progress none > out 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << read("out");
  EXPECT_TRUE(std::filesystem::exists(path("run/weights.safetensors")));
}

TEST_F(Train, NeverOverwritesUnasked) {
  ASSERT_EQ(train("run").code, 0);
  const std::string before = read("run/weights.safetensors");
  const Outcome refused = train("run", {"--seed", "8"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("--overwrite"), std::string::npos) << refused.err;
  EXPECT_EQ(read("run/weights.safetensors"), before);
  ASSERT_EQ(train("run", {"--seed", "8", "--overwrite"}).code, 0);
  EXPECT_NE(read("run/weights.safetensors"), before);
  EXPECT_EQ(read_lines("run/metrics.jsonl").size(), 17u) << "the old metrics are gone";
}

TEST_F(Train, RunsGetFoldersOfTheirOwn) {
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(
        run({"train", "tiny.yaml", "--threads", "1", "--progress", "none", "data.limit=32", "train.evaluate=false"})
            .code,
        0);
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path("runs"))) {
    EXPECT_EQ(entry.path().filename().string().rfind("tiny-2", 0), 0u) << entry.path();
    ++folders;
  }
  EXPECT_EQ(folders, 2);
}

TEST_F(Train, AFinishedRunGoesOnToMoreEpochs) {
  ASSERT_EQ(train("whole", {"train.epochs=3"}).code, 0);
  ASSERT_EQ(train("parts", {"train.epochs=1"}).code, 0);
  const Outcome done = run({"train", "--resume", "parts"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.err.find("parts has finished its 1 epoch; train.epochs=N"), std::string::npos) << done.err;
  const Outcome more = run({"train", "--resume", "parts", "train.epochs=3", "--threads", "1", "--json"});
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(more.last_json()["epochs"], 3);
  EXPECT_EQ(read("parts/weights.safetensors"), read("whole/weights.safetensors"));
  EXPECT_EQ(read_state("parts"), read_state("whole"));
}

/// Signals a run that is under way; returns its outcome.
class Stop : public Train, public ::testing::WithParamInterface<int> {};

TEST_P(Stop, FinishesTheUpdateAndSavesAndResumesToTheSameBits) {
  const pid_t child =
      start({"train", "tiny.yaml", "--run-dir", "run", "--threads", "1", "--json", "train.epochs=1000000"});
  ASSERT_TRUE(wait_until([&] {
    return std::filesystem::exists(path("run/metrics.jsonl")) &&
           std::filesystem::file_size(path("run/metrics.jsonl")) > 2000;
  })) << "training did not begin";
  kill(child, GetParam());
  const Outcome stopped = wait(child);
  ASSERT_EQ(stopped.code, GetParam() == SIGINT ? 130 : 75) << stopped.err;
  const nlohmann::json end = stopped.last_json();
  EXPECT_TRUE(end["stopped"].get<bool>());
  const std::string epochs = "train.epochs=" + std::to_string(end["epochs"].get<int>() + 1);
  const Outcome resumed = run({"train", "--resume", "run", epochs, "--threads", "1", "--json", "--progress", "none"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  ASSERT_EQ(train("whole", {epochs}).code, 0);
  EXPECT_EQ(read("run/weights.safetensors"), read("whole/weights.safetensors"));
  EXPECT_EQ(read_state("run"), read_state("whole"));
  std::vector<double> parts, whole;  // each update once, with the same loss
  for (const auto& line : read_lines("run/metrics.jsonl"))
    if (line["kind"] == "update") parts.push_back(line["loss"].get<double>());
  for (const auto& line : read_lines("whole/metrics.jsonl"))
    if (line["kind"] == "update") whole.push_back(line["loss"].get<double>());
  EXPECT_EQ(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(Signals, Stop, ::testing::Values(SIGINT, SIGTERM, SIGUSR1, SIGHUP), [](const auto& info) {
  return info.param == SIGINT    ? "interrupt"
         : info.param == SIGTERM ? "terminate"
         : info.param == SIGUSR1 ? "user"
                                 : "hangup";
});

}  // namespace
}  // namespace bantam::cli::train_test
