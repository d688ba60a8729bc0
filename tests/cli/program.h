// Runs the built program as a subprocess, in a folder of its own.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/json.h"

namespace bantam::cli {

struct Outcome {
  int code = -1;  ///< exit code; 128 + number where a signal ended it
  std::string out, err;
  nlohmann::json last_json() const {
    const std::string text = out.substr(0, out.find_last_not_of('\n') + 1);
    return nlohmann::json::parse(text.substr(text.rfind('\n') + 1));
  }
};

/// A temporary folder, removed at the end; programs run in it.
class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "bantam-cli-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~ProgramTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  std::string read(const std::string& name) const { return read_file(path(name)); }
  std::vector<nlohmann::json> read_lines(const std::string& name) const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path(name));
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  /// A file of the newest checkpoint of a run: "state.safetensors" by default.
  std::filesystem::path newest(const std::string& run, const std::string& file = "state.safetensors") const {
    std::filesystem::path newest;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path(run) / "checkpoints", error))
      if (entry.path().filename().string().starts_with("update-")) newest = std::max(newest, entry.path());
    return newest / file;
  }
  std::string read_state(const std::string& run) const { return read_file(newest(run)); }

  /// Starts the program, with signals ignored as nohup would; its output goes to files in the folder.
  pid_t start(const std::vector<std::string>& arguments, const std::vector<int>& ignored = {},
              const std::string& within = ".") const {
    const pid_t child = fork();
    if (child != 0) return child;
    // Whoever started the tests may ignore signals (a shell does so for its background jobs).
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) signal(number, SIG_DFL);
    for (const int number : ignored) signal(number, SIG_IGN);
    const int out = open(path("stdout").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    const int err = open(path("stderr").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (chdir((folder_ / within).c_str()) != 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
    std::vector<char*> argv{const_cast<char*>("bantam")};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const char* elsewhere = std::getenv("BANTAM_PROGRAM");  // where the tests run on another machine than the build
    execv(elsewhere != nullptr ? elsewhere : BANTAM_PROGRAM, argv.data());
    _exit(127);
  }
  Outcome wait(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    outcome.out = read("stdout");
    outcome.err = read("stderr");
    return outcome;
  }
  Outcome run(const std::vector<std::string>& arguments) const { return wait(start(arguments)); }
  /// The same in a folder of the test's own.
  Outcome run_in(const std::string& within, const std::vector<std::string>& arguments) const {
    return wait(start(arguments, {}, within));
  }

  /// A small network with batch normalisation and dropout on a small generated set: an epoch is 16 updates of 16
  /// images.
  void write_tiny_config(const std::string& name = "tiny.yaml") const {
    write(name, R"(version: 1
seed: 7
device: cpu
data:
  format: generated
  train_samples: 256
  test_samples: 40
  pipeline:
    - shuffle: {}
    - random_crop: {padding: 2}
    - random_flip: {}
    - normalize: {scale: 0.00392156862745098}
    - batch: {size: 16, drop_last: true}
    - prefetch: {depth: 2, workers: 1}
model:
  name: tiny
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 8, kernel: 3, stride: 2, padding: same, bias: false}
    - batch_norm: {activation: relu}
    - block: {name: middle, body: [separable_conv2d: {filters: 12, kernel: 3, stride: 2}, batch_norm, relu]}
    - dropout: {rate: 0.2}
    - flatten
    - dense: {units: 10}
train:
  epochs: 1
  optimizer: {adam: {learning_rate: 2.0e-3}}
)");
  }
  /// Trains tiny.yaml on one thread (the machine may be busy) in folder `run_dir`, with further arguments.
  Outcome train(const std::string& run_dir, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train", "tiny.yaml", "--run-dir", run_dir, "--json", "--progress", "none"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (std::find(more.begin(), more.end(), "--threads") == more.end())
      arguments.insert(arguments.end(), {"--threads", "1"});
    return run(arguments);
  }

 private:
  std::filesystem::path folder_;
};

/// Waits until `done`, for at most a minute.
inline bool wait_until(const std::function<bool()>& done) {
  for (int i = 0; i < 6000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace bantam::cli
