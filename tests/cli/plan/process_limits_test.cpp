// The program within limits that the system sets a process: memory of a container, size of a file, stack of a thread.
#include <sys/resource.h>

#include "tests/cli/program.h"

namespace bantam::cli::process_limits_test {
namespace {

/// A soft limit of this process, and of programs that it starts, for a scope.
class SoftLimit {
 public:
  SoftLimit(int resource, rlim_t most) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit with{std::min(most, before_.rlim_max), before_.rlim_max};
    EXPECT_EQ(setrlimit(resource_, &with), 0);
  }
  ~SoftLimit() { setrlimit(resource_, &before_); }
  SoftLimit(const SoftLimit&) = delete;
  SoftLimit& operator=(const SoftLimit&) = delete;

 private:
  int resource_;
  rlimit before_{};
};

class ProcessLimits : public ProgramTest {
 protected:
  ProcessLimits() { write_tiny_config(); }

  /// Runs the program where /sys/fs/cgroup and /proc/self/cgroup say that the container has `bytes` of memory: in mount
  /// and user namespaces of its own, so that nothing else sees them. Code 126: the system does not allow that.
  Outcome run_in_container(const std::string& bytes, const std::vector<std::string>& arguments) const {
    const char* elsewhere = std::getenv("BANTAM_PROGRAM");
    write("container.sh",
          "mount -t tmpfs none /sys/fs/cgroup || exit 126\n"
          "mkdir -p /sys/fs/cgroup/job /sys/fs/cgroup/memory || exit 126\n"
          "echo " +
              bytes +
              " > /sys/fs/cgroup/memory.max\n"
              "echo " +
              bytes +
              " > /sys/fs/cgroup/memory/memory.limit_in_bytes\n"
              "echo 0 > /sys/fs/cgroup/memory.current\n"
              "exec \"$@\"\n");
    const pid_t child = fork();
    if (child != 0) return wait(child);
    const int out = open(path("stdout").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    const int err = open(path("stderr").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (chdir(path("").c_str()) != 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
    std::vector<std::string> words{"unshare", "-rm", "sh", "container.sh", elsewhere ? elsewhere : BANTAM_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execvp("unshare", argv.data());
    _exit(126);
  }
};

TEST_F(ProcessLimits, APlanThatTheContainerCannotHoldIsRefused) {
  const std::vector<std::string> train{"train",
                                       "tiny.yaml",
                                       "--run-dir",
                                       "run",
                                       "--progress",
                                       "plain",
                                       "data.pipeline.batch.size=256",
                                       "data.train_samples=20000"};
  const Outcome roomy = run_in_container("2000000000", {"summary", "tiny.yaml"});
  if (roomy.code == 126 || roomy.err.find("unshare") != std::string::npos) GTEST_SKIP() << "no namespaces: skipped";
  ASSERT_EQ(roomy.code, 0) << roomy.err;
  for (const char* growth : {"memory.growth=true", "memory.growth=false"}) {
    std::vector<std::string> arguments = train;
    arguments.push_back(growth);
    const Outcome outcome = run_in_container("40000000", arguments);
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_NE(outcome.err.find("/sys/fs/cgroup/memory"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("38.1 MiB"), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(path("run"))) << "nothing has begun";
  }
  const Outcome bench = run_in_container("4000000", {"bench", "step", "tiny.yaml", "--batch-sizes", "256"});
  EXPECT_EQ(bench.code, 4) << bench.err;
  EXPECT_NE(bench.err.find("/sys/fs/cgroup/memory"), std::string::npos) << bench.err;
  std::vector<std::string> micro_batches = train;
  micro_batches.push_back("memory.on_oom=accumulate_with_batch_norm");
  const Outcome smaller = run_in_container("75000000", micro_batches);
  EXPECT_EQ(smaller.code, 0) << smaller.err;
  EXPECT_NE(smaller.err.find("the pool is limited to"), std::string::npos) << smaller.err;
}

TEST_F(ProcessLimits, AFileThatMayNotGrowIsAnErrorAndNoSignal) {
  const SoftLimit limit(RLIMIT_FSIZE, 8 << 10);
  const Outcome outcome = train("run");
  EXPECT_NE(outcome.code, 0);
  EXPECT_LT(outcome.code, 128) << "ended by signal " << outcome.code - 128;
  EXPECT_NE(outcome.err.find("File too large"), std::string::npos) << outcome.err;
}

TEST_F(ProcessLimits, SmallStacksDo) {
  const std::string layers =
      "model.layers=[conv2d: {filters: 32, kernel: 3, stride: 2}, batch_norm: {activation: relu}, "
      "depthwise_conv2d: {kernel: 3, padding: same, bias: false}, batch_norm: {activation: relu}, "
      "conv2d: {filters: 32, kernel: 1}, max_pool: {size: 2}, flatten, dense: {units: 64, activation: relu}, "
      "dense: {units: 10}]";
  for (const rlim_t kib : {384, 256, 160}) {
    SCOPED_TRACE(kib);
    const SoftLimit limit(RLIMIT_STACK, kib << 10);
    for (const char* threads : {"1", "3"}) {
      const Outcome outcome = train("run" + std::to_string(kib) + threads, {layers, "--threads", threads});
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
  }
}

}  // namespace
}  // namespace bantam::cli::process_limits_test
