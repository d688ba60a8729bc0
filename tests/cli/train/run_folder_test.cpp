// The folder of a run: one process at a time, nothing removed that was saved, and failures of files that cost no work.
#include <cstring>
#include <limits>
#include <set>

#include <sys/stat.h>

#include "bantam/engine/train/safetensors.h"
#include "tests/cli/program.h"

namespace bantam::cli::run_folder_test {
namespace {

namespace fs = std::filesystem;

class RunFolder : public ProgramTest {
 protected:
  RunFolder() { write_tiny_config(); }
  static std::string program() {
    const char* elsewhere = std::getenv("BANTAM_PROGRAM");
    return elsewhere != nullptr ? elsewhere : BANTAM_PROGRAM;
  }
  /// Exit code of a shell command in the folder; `$P` is the program.
  int shell(const std::string& command) const {
    const int status = std::system(("cd " + path(".").string() + " && P=" + program() + "; " + command).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// A run without end in the folder `run`, once it has logged something.
  pid_t start_live_run(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"train", "--threads", "1", "--progress", "plain", "train.epochs=1000000"};
    arguments.insert(arguments.begin() + 1, more.begin(), more.end());
    const pid_t child = start(arguments);
    EXPECT_TRUE(wait_until([&] {
      std::error_code error;
      return fs::exists(path("run/.lock"), error) && fs::is_regular_file(path("run/metrics.jsonl"), error) &&
             fs::file_size(path("run/metrics.jsonl")) > 2000;
    })) << read("stderr");
    return child;
  }
  Outcome stop(pid_t child) const {
    kill(child, SIGINT);
    return wait(child);
  }
  /// Exit code and stderr of a command that runs beside another one.
  std::pair<int, std::string> beside(const std::string& arguments) const {
    const int code = shell("timeout 30 $P " + arguments + " > beside.out 2> beside.err");
    return {code, read("beside.err")};
  }
};

TEST_F(RunFolder, IsOneProcessesAtATime) {
  const pid_t child = start_live_run({"tiny.yaml", "--run-dir", "run"});
  for (const char* arguments :
       {"train tiny.yaml --run-dir run --overwrite --progress none", "train tiny.yaml --run-dir run --progress none",
        "train --resume run --progress none"}) {
    const auto [code, error] = beside(arguments);
    EXPECT_EQ(code, 2) << arguments << ": " << error;
    EXPECT_NE(error.find("in use by process " + std::to_string(child) + " ("), std::string::npos) << error;
    EXPECT_NE(error.find("train tiny.yaml --run-dir run"), std::string::npos) << error;
  }
  const Outcome stopped = stop(child);
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  EXPECT_GT(read_lines("run/metrics.jsonl").size(), 5u) << "nobody has removed them";
  EXPECT_FALSE(fs::exists(path("run/.lock"))) << "the lock goes with its holder";

  const pid_t resumed = start_live_run({"--resume", "run"});
  const auto [code, error] = beside("train --resume run train.epochs=1000001 --progress none");
  EXPECT_EQ(code, 2) << error;
  EXPECT_EQ(stop(resumed).code, 130);
}

TEST_F(RunFolder, IsFreeAfterItsProcessWasKilled) {
  const pid_t child = start_live_run({"tiny.yaml", "--run-dir", "run"});
  kill(child, SIGKILL);
  EXPECT_EQ(wait(child).code, 128 + SIGKILL);
  EXPECT_EQ(train("run", {"--overwrite"}).code, 0) << read("stderr");
}

TEST_F(RunFolder, OfTwoStartsOneGetsIt) {
  const std::string one = "$P train tiny.yaml --run-dir run --threads 1 --progress none train.epochs=3 > ";
  (void)shell("(" + one + "a.out 2> a.err; echo $? > a) & (" + one + "b.out 2> b.err; echo $? > b) & wait");
  const std::string codes = read("a") + read("b");
  EXPECT_TRUE(codes == "0\n2\n" || codes == "2\n0\n") << codes << read("a.err") << read("b.err");
  EXPECT_EQ(read_lines("run/metrics.jsonl").size(), 3u * 17u);
}

TEST_F(RunFolder, KeepsSavedWeightsWhereTheStateCannotBeSaved) {
  const pid_t child = start_live_run({"tiny.yaml", "--run-dir", "run", "checkpoint.every=off"});
  fs::remove(path("run/metrics.jsonl"));  // rotated away
  write("run/checkpoints", "in the way");
  const Outcome stopped = stop(child);
  EXPECT_EQ(stopped.code, 3) << stopped.err;
  EXPECT_NE(stopped.err.find("run/checkpoints"), std::string::npos) << stopped.err;
  EXPECT_TRUE(fs::exists(path("run/weights.safetensors"))) << "removed after they were saved";
  EXPECT_TRUE(fs::exists(path("run/config.yaml")));
}

TEST_F(RunFolder, TrainingGoesOnWhereCheckpointsCannotBeWritten) {
  write("tiny.yaml", read("tiny.yaml") + "checkpoint: {every: 20updates, min_interval: 0s}\n");
  const pid_t child = start_live_run({"tiny.yaml", "--run-dir", "run"});
  ASSERT_TRUE(wait_until([&] { return fs::exists(newest("run")); }));
  fs::rename(path("run/checkpoints"), path("run/elsewhere"));
  write("run/checkpoints", "in the way");
  ASSERT_TRUE(wait_until([&] { return read("stderr").find("training goes on") != std::string::npos; }));
  fs::remove(path("run/checkpoints"));
  fs::rename(path("run/elsewhere"), path("run/checkpoints"));
  ASSERT_TRUE(wait_until([&] { return read("stderr").find("written again") != std::string::npos; }));
  const Outcome stopped = stop(child);
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  EXPECT_NE(stopped.err.find("could not be written; the last one is complete"), std::string::npos) << stopped.err;
}

TEST_F(RunFolder, MetricsThatCannotBeWrittenWarnAndWait) {
  ASSERT_EQ(train("run").code, 0);
  const std::size_t earlier = read_lines("run/metrics.jsonl").size();
  fs::remove(path("run/metrics.jsonl"));
  fs::create_directory(path("run/metrics.jsonl"));
  EXPECT_GT(earlier, 0u);
  const pid_t child = start({"train", "--resume", "run", "--threads", "1", "--progress", "none", "train.epochs=1000000",
                             "--json", "--accept-changes"});
  ASSERT_TRUE(wait_until([&] {
    return read("stderr").find("cannot be written") != std::string::npos || waitpid(child, nullptr, WNOHANG) == child;
  }));
  EXPECT_NE(read("stderr").find("warning: run/metrics.jsonl cannot be written"), std::string::npos) << read("stderr");
  fs::remove(path("run/metrics.jsonl"));
  EXPECT_TRUE(wait_until([&] { return read("stderr").find("is written again") != std::string::npos; }))
      << read("stderr");
  const Outcome stopped = stop(child);
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  std::int64_t updates = 0;
  for (const auto& line : read_lines("run/metrics.jsonl")) updates += line["kind"] == "update";
  EXPECT_EQ(updates, stopped.last_json()["updates"].get<std::int64_t>()) << "every line came in the end";
}

TEST_F(RunFolder, AFailureOnTheWaySavesWhatWasTrained) {
  // 16 updates are done, with steps so large that no gradient of the next 50 is finite.
  const Outcome outcome = train("run", {"train.epochs=8", "train.optimizer.adam.learning_rate=1e30",
                                        "train.evaluate=false", "train.log_every=1"});
  ASSERT_EQ(outcome.code, 5) << outcome.err;
  for (const char* file : {"config.yaml", "weights.safetensors", "checkpoints"})
    EXPECT_TRUE(fs::exists(path("run") / file)) << file;
  EXPECT_NE(read("run/run.json").find("\"failed\""), std::string::npos);
  EXPECT_NE(outcome.err.find("saved in run"), std::string::npos) << outcome.err;
  // A run that was sound when it was saved keeps that state.
  ASSERT_EQ(train("sound").code, 0);
  const std::string before = read_state("sound");
  ASSERT_EQ(run({"train", "--resume", "sound", "train.epochs=9", "train.optimizer.adam.learning_rate=1e30",
                 "--accept-changes", "train.evaluate=false", "--threads", "1", "--progress", "none"})
                .code,
            5);
  EXPECT_EQ(read_state("sound"), before);
}

TEST_F(RunFolder, ErrorsSurviveAStderrThatCannotBeWritten) {
  EXPECT_EQ(shell("$P train nope.yaml 2> /dev/full"), 2);
  EXPECT_EQ(shell("$P train nope.yaml 2>&-"), 2);
  const std::string training = "$P train tiny.yaml --threads 1 --progress json --run-dir ";
  EXPECT_EQ(shell(training + "full > out 2> /dev/full"), 0);
  EXPECT_EQ(shell(training + "closed > out 2>&-"), 0);
  // The summary did not arrive, which is an error; but one with an exit code.
  EXPECT_EQ(shell("{ " + training + "pipe 2>&1; echo $? > code; } | true"), 0);
  EXPECT_EQ(read("code"), "1\n");
  for (const char* run_dir : {"full", "closed", "pipe"}) {
    EXPECT_TRUE(fs::exists(newest(run_dir))) << run_dir;
    for (const auto& line : read_lines(std::string(run_dir) + "/metrics.jsonl"))
      EXPECT_TRUE(line.contains("kind")) << "progress went into the metrics: " << line;
  }
}

TEST_F(RunFolder, AHangupThatTakesTheTerminalAlongIsAStopLikeAnyOther) {
  const int code = shell(
      "$P train tiny.yaml --threads 1 --run-dir run train.epochs=1000000 > /dev/full 2> /dev/full & "
      "for i in $(seq 600); do [ -s run/metrics.jsonl ] && break; sleep 0.1; done; kill -HUP $!; wait $!");
  EXPECT_EQ(code, 75) << "stopped and saved, whoever reads the summary";
}

TEST_F(RunFolder, NamesThatCannotBeUsedAreOurErrors) {
  fs::create_symlink("loop", path("loop"));
  write("file", "text");
  const auto expect = [&](const std::string& option, const std::string& folder, const std::string& part) {
    const Outcome outcome = run({"train", option == "--resume" ? "train.epochs=2" : "tiny.yaml", option, folder,
                                 "--threads", "1", "--progress", "none"});
    EXPECT_EQ(outcome.code, 3) << option << " " << folder << ": " << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("filesystem error"), std::string::npos) << outcome.err;
  };
  const std::string longest(300, 'x');
  for (const char* option : {"--run-dir", "--resume"}) {
    expect(option, "loop", "cannot look at loop");
    expect(option, "loop/run", "cannot look at loop/run");
    expect(option, longest, "File name too long");
    expect(option, longest + "/run", "File name too long");
  }
  expect("--run-dir", "file", "file is no folder");
  expect("--run-dir", "file/run", "file/run");
  expect("--resume", "file", "holds no run");
  expect("--resume", "file/run", "holds no run");
  fs::create_directories(path("busy/config.yaml/in_the_way"));
  const Outcome outcome = train("busy", {"--overwrite"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("cannot remove busy/config.yaml"), std::string::npos) << outcome.err;
}

TEST_F(RunFolder, JsonOfANameThatIsNoText) {
  const Outcome outcome = train("run-\xff\xfe");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.last_json()["run_dir"], "run-\\xff\\xfe");
  EXPECT_EQ(outcome.last_json()["run_dir_bytes"], "cnVuLf/+");
}

TEST_F(RunFolder, ImpossiblePositionsOfAStateAreDataErrors) {
  ASSERT_EQ(train("run").code, 0);
  const fs::path state = newest("run"), facts = newest("run", "checkpoint.json");
  nlohmann::json json = nlohmann::json::parse(read_file(facts));  // of an earlier version: without SHA-256
  json["version"] = 1;
  for (auto& [file, sum] : json["files"].items()) sum.erase("sha256");
  write_file_atomically(facts, json.dump());
  const SafetensorsFile sound = read_safetensors(state);
  const auto expect = [&](const std::string& counter, std::int64_t value) {
    SafetensorsFile file = sound;
    std::memcpy(file.tensors.at(counter).bytes.data(), &value, sizeof(value));
    write_safetensors(state, file);
    const Outcome outcome = run({"train", "--resume", "run", "train.epochs=3", "--threads", "1", "--progress", "none"});
    EXPECT_EQ(outcome.code, 3) << counter << " " << value << ": " << outcome.err;
    EXPECT_NE(outcome.err.find(counter + " is " + std::to_string(value)), std::string::npos) << outcome.err;
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(), kLeast = -kMost - 1;
  for (const std::int64_t value : {kLeast, std::int64_t{-1}}) {
    for (const char* counter : {"trainer/epoch", "trainer/update", "trainer/effective_batch", "trainer/batches"})
      expect(counter, value);
  }
  for (const std::int64_t value : {std::int64_t{17}, kMost}) expect("trainer/update", value);
  write_safetensors(state, sound);
  EXPECT_EQ(run({"train", "--resume", "run", "train.epochs=2", "--threads", "1", "--progress", "none"}).code, 0);
}

/// A run's folder as a stranger may send it: each of its files leads elsewhere, to a file that is there or is not, or
/// is a FIFO. Whatever the verb, nothing outside is read into an answer, changed or made, and nothing waits.
TEST_F(RunFolder, AStrangersTouchesNothingOutside) {
  write("tiny.yaml", read("tiny.yaml") +
                         "checkpoint: {every: 5updates, min_interval: 0s, best: {metric: loss, mode: min}}\n"
                         "log: {histograms: 5, tensorboard: true}\n");
  ASSERT_EQ(train("sound", {"train.max_updates=10", "train.ema={decay: 0.9}"}).code, 0) << read("stderr");
  std::vector<fs::path> files = {
      "report.html",       "metrics.jsonl.kept",         ".lock", "checkpoints", "tensorboard",
      "tensorboard/train", "checkpoints/update-00000010"};
  for (const auto& entry : fs::recursive_directory_iterator(path("sound")))
    if (entry.is_regular_file()) files.push_back(entry.path().lexically_relative(path("sound")));
  ASSERT_GT(files.size(), 18u);
  const auto outside = [&] {
    std::string all;
    std::set<fs::path> names;
    for (const auto& entry : fs::recursive_directory_iterator(path("outside"))) names.insert(entry.path());
    for (const fs::path& name : names) all += name.string() + (fs::is_regular_file(name) ? read_file(name) : "") + "\n";
    return all;
  };
  for (const fs::path& file : files)
    for (const char* kind : {"link", "dangling", "fifo", "hard"}) {
      const fs::path place = path("run") / file, target = path("outside/there");
      fs::remove_all(path("run"));
      fs::remove_all(path("outside"));
      fs::create_directory(path("outside"));
      fs::copy(path("sound"), path("run"), fs::copy_options::recursive);
      const bool is_folder = fs::is_directory(place);
      if (fs::exists(place)) fs::copy(place, target, fs::copy_options::recursive);
      if (!fs::exists(target)) write("outside/there", "theirs");
      if (*kind == 'h' && is_folder) continue;
      fs::remove_all(place);
      if (*kind == 'f')
        ASSERT_EQ(mkfifo(place.c_str(), 0600), 0);
      else if (*kind == 'h')
        fs::create_hard_link(target, place);
      else
        fs::create_symlink(*kind == 'd' ? path("outside/none") : target, place);
      const std::string before = outside();
      for (const char* verb :
           {"evaluate run", "report run --samples 0 --progress none", "inspect run", "runs .", "compare run sound",
            "export run --onnx net.onnx", "train --resume run train.max_updates=12 --threads 1 --progress none"}) {
        const auto [code, error] = beside(verb);
        EXPECT_TRUE(code == 0 || code == 2 || code == 3)
            << file << " " << kind << ": " << verb << ": " << code << error;
        EXPECT_TRUE(outside() == before) << file << " " << kind << ": " << verb << " wrote outside of the run's folder";
        EXPECT_EQ(error.find("filesystem error"), std::string::npos) << error;
        EXPECT_EQ(error.find("json.exception"), std::string::npos) << error;
        fs::remove(path("net.onnx"));
      }
    }
}

TEST_F(RunFolder, ATemporaryFolderThatIsNoneIsNamed) {
  EXPECT_EQ(shell("TMPDIR=nowhere $P train tiny.yaml --dry-run 2> err"), 3);
  EXPECT_NE(read("err").find("nowhere: is no folder, and temporary files go there because TMPDIR says so"),
            std::string::npos)
      << read("err");
}

}  // namespace
}  // namespace bantam::cli::run_folder_test
