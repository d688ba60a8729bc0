// One run on several processes: the same bits on any number of them, signals, failures, limits, launchers.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "tests/cli/program.h"

namespace bantam::cli::ranks_test {
namespace {

using std::chrono::milliseconds;

/// Whatever a replica's results could depend on; an epoch is 4 updates of 4 replicas of 2 batches of 8 images.
const std::vector<std::string> kEverything = {
    "precision=mixed_bfloat16", "recompute=all",          "train.accumulate=2",
    "train.clip_norm=0.5",      "train.ema={decay: 0.9}", "train.prune={final: 0.5, begin: 2, end: 6, frequency: 2}"};

/// A port that was free a moment ago.
int free_port() {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t bytes = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(descriptor, any, bytes), 0);
  EXPECT_EQ(getsockname(descriptor, any, &bytes), 0);
  close(descriptor);
  return ntohs(address.sin_port);
}

class Ranks : public ProgramTest {
 protected:
  Ranks() {
    write_tiny_config();
    ::unsetenv("BANTAM_RANK");
  }
  std::vector<std::string> arguments(const std::string& run_dir, int ranks, std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"train",
                                    "tiny.yaml",
                                    "--run-dir",
                                    run_dir,
                                    "train.replicas=4",
                                    "train.epochs=2",
                                    "data.pipeline.batch.size=8",
                                    "checkpoint={every: 3updates, min_interval: 0s}",
                                    "--ranks",
                                    std::to_string(ranks),
                                    "--threads",
                                    "1",
                                    "--progress",
                                    "none"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome resume(const std::string& run_dir, int ranks, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"train", "--resume", run_dir, "--ranks", std::to_string(ranks), "--threads", "1",
                               "--progress", "none"});
    return run(more);
  }
  /// metrics.jsonl without what a clock or a rank's memory says.
  std::string metrics(const std::string& run_dir) const {
    std::string text;
    for (nlohmann::json line : read_lines(run_dir + "/metrics.jsonl")) {
      for (const char* key :
           {"seconds", "evaluation_seconds", "images_per_s", "data_wait_share", "peak_bytes", "pool_bytes"})
        line.erase(key);
      text += line.dump() + "\n";
    }
    return text;
  }
  std::string weights(const std::string& run_dir) const { return read(run_dir + "/weights.safetensors"); }
  bool logged(const std::string& run_dir, std::size_t lines) const {
    std::error_code error;
    if (!std::filesystem::exists(path(run_dir) / "metrics.jsonl", error)) return false;
    const std::string text = read(run_dir + "/metrics.jsonl");
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= lines;
  }
  /// The processes that `parent` has started, in the order of their ranks.
  static std::vector<pid_t> children_of(pid_t parent) {
    const std::string id = std::to_string(parent);
    std::ifstream file("/proc/" + id + "/task/" + id + "/children");
    std::vector<pid_t> children;
    for (pid_t child = 0; file >> child;) children.push_back(child);
    return children;
  }
  static bool lives(pid_t process) { return kill(process, 0) == 0; }
  /// Whether the process has a TCP socket at which others can connect.
  static bool listens(pid_t process) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();  // socket:[NUMBER]
      if (!target.starts_with("socket:")) continue;
      const std::string number = " " + target.substr(8, target.size() - 9) + " ";
      std::ifstream sockets("/proc/net/tcp");
      for (std::string line; std::getline(sockets, line);)
        if (line.find(number) != std::string::npos && line.find(" 0A ") != std::string::npos) return true;
    }
    return false;
  }
};

TEST_F(Ranks, HaveTheSameBitsHoweverMany) {
  for (const bool everything : {false, true}) {
    const std::string name = everything ? "everything" : "plain";
    const std::vector<std::string> more = everything ? kEverything : std::vector<std::string>();
    for (int ranks = 1; ranks <= 4; ++ranks) {
      const std::string run_dir = name + std::to_string(ranks);
      const Outcome outcome = run(arguments(run_dir, ranks, more));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(outcome.err, "") << "ranks other than 0 are quiet";
      EXPECT_TRUE(weights(run_dir) == weights(name + "1")) << run_dir;
      EXPECT_EQ(metrics(run_dir), metrics(name + "1")) << run_dir;
    }
    EXPECT_EQ(read_lines(name + "4/metrics.jsonl").back()["validation_samples"], 40);
  }
  EXPECT_FALSE(weights("plain1") == weights("everything1"));
}

TEST_F(Ranks, MayHaveUnevenShares) {
  ASSERT_EQ(run(arguments("one", 1)).code, 0);
  for (const std::string split : {"[1, 3]", "[3, 1]", "auto"}) {
    const std::string run_dir = "split" + split;
    const Outcome outcome = run(arguments(run_dir, 2, {"train.split=" + split}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(weights(run_dir) == weights("one")) << split;
  }
}

TEST_F(Ranks, StopTogetherAndGoOnAsAnotherNumber) {
  const std::vector<std::string> longer = {"train.epochs=30"};
  ASSERT_EQ(run(arguments("whole", 1, longer)).code, 0);
  for (int stopped = 0; stopped < 4; ++stopped) {
    const std::string run_dir = "run" + std::to_string(stopped);
    const pid_t parent = start(arguments(run_dir, 4, longer));
    ASSERT_TRUE(wait_until([&] { return logged(run_dir, 5); }));
    const std::vector<pid_t> children = children_of(parent);
    ASSERT_EQ(children.size(), 3u);
    kill(stopped == 0 ? parent : children[static_cast<std::size_t>(stopped - 1)], stopped == 2 ? SIGINT : SIGTERM);
    const Outcome outcome = wait(parent);
    ASSERT_EQ(outcome.code, stopped == 2 ? 130 : 75) << outcome.err;
    for (const pid_t child : children) EXPECT_FALSE(lives(child));
    EXPECT_LT(read_lines(run_dir + "/metrics.jsonl").size(), 30u * 9u);
    const Outcome resumed = resume(run_dir, stopped + 1);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_TRUE(weights(run_dir) == weights("whole")) << stopped;
    EXPECT_EQ(metrics(run_dir), metrics("whole")) << stopped;
  }
}

TEST_F(Ranks, EndWithTheReasonOfTheOneThatFails) {
  // Rank 1 has no room for its replicas; rank 0 has.
  const Outcome outcome = run(arguments("run", 2, {"memory={limits: {cpu: [1GiB, 1MiB]}}", "recompute=none"}));
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("rank 1: bantam: error: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("bantam: error: rank 1 on "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("the run has ended on all 2 ranks"), std::string::npos) << outcome.err;
}

// The preloaded library of faults holds the saving up. Rank 0 computes nearly all of the time, so that its watch hears
// of the end of rank 1 before the training does.
TEST_F(Ranks, TheFirstSavesHoweverLongThatTakes) {
#ifndef BANTAM_FAULTS
  GTEST_SKIP() << "no library of faults";
#else
  const std::string hold = path("weights.safetensors").string(), folder = path("run").string();
  ::setenv("LD_PRELOAD", BANTAM_FAULTS, 1);
  ::setenv("BANTAM_FAULT_FOLDER", folder.c_str(), 1);
  ::setenv("BANTAM_FAULT_HOLD", hold.c_str(), 1);
  const pid_t parent =
      start(arguments("run", 2,
                      {"train.epochs=1000000", "checkpoint.every=off", "train.split=[3, 1]", "data.train_samples=1024",
                       "data.pipeline.batch.size=64", "train.accumulate=4", "train.evaluate=false"}));
  ASSERT_TRUE(wait_until([&] { return logged("run", 5); }));
  const std::vector<pid_t> children = children_of(parent);
  ASSERT_EQ(children.size(), 1u);
  write("weights.safetensors", "");
  kill(children[0], SIGKILL);
  std::this_thread::sleep_for(milliseconds(6000));  // 4 s after a failure a rank that hangs is ended
  EXPECT_EQ(nlohmann::json::parse(read("run/run.json"))["state"], "running") << "it is held up";
  std::filesystem::remove(hold);
  const Outcome outcome = wait(parent);
  for (const char* name : {"LD_PRELOAD", "BANTAM_FAULT_FOLDER", "BANTAM_FAULT_HOLD"}) ::unsetenv(name);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("which are saved in"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("(ended by signal 9 (Killed))"), std::string::npos) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(read("run/run.json"))["state"], "failed");
  const Outcome resumed = resume("run", 1, {"train.max_updates=1", "train.split=even"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
#endif
}

// Rank 1 has no room; rank 0 waits for bytes of a pipe that never come.
TEST_F(Ranks, AFirstThatHangsEndsWithTheCodeOfTheOneThatFailed) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int pipe = open(path("pipe").c_str(), O_RDWR | O_CLOEXEC);
  const Outcome outcome = run(arguments(
      "run", 2,
      {"memory={limits: {cpu: [1GiB, 1MiB]}}", "recompute=none", "train.initial_weights=" + path("pipe").string()}));
  close(pipe);
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("bantam: error: rank 1 on "), std::string::npos) << outcome.err;
}

TEST_F(Ranks, LeaveNoOrphansWhereTheFirstIsKilled) {
  const pid_t parent = start(arguments("run", 3, {"train.epochs=1000000"}));
  ASSERT_TRUE(wait_until([&] { return logged("run", 5); }));
  const std::vector<pid_t> children = children_of(parent);
  ASSERT_EQ(children.size(), 2u);
  kill(parent, SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(wait(parent).code, 128 + SIGKILL);
  EXPECT_TRUE(wait_until([&] { return !lives(children[0]) && !lives(children[1]); }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_NE(read("stderr").find("rank 1: bantam: error: rank 0"), std::string::npos) << read("stderr");
}

TEST_F(Ranks, WakeUpWhereTheFirstIsKilledWhileOneIsHalted) {
  const pid_t parent = start(arguments("run", 3, {"train.epochs=1000000"}));
  ASSERT_TRUE(wait_until([&] { return logged("run", 5); }));
  const std::vector<pid_t> children = children_of(parent);
  ASSERT_EQ(children.size(), 2u);
  for (const pid_t child : children) EXPECT_FALSE(listens(child));
  kill(children[1], SIGSTOP);
  kill(parent, SIGKILL);
  EXPECT_EQ(wait(parent).code, 128 + SIGKILL);
  EXPECT_TRUE(wait_until([&] { return !lives(children[0]) && !lives(children[1]); }));
}

/// Without recompute a rank of it needs 150 MiB.
TEST_F(Ranks, KeepWithinLimitsOfTheirOwn) {
  std::string layers;
  for (int i = 0; i < 6; ++i)
    layers +=
        "    - conv2d: {filters: 24, kernel: 3, padding: same, bias: false}\n    - batch_norm: {activation: relu}\n";
  write("tiny.yaml",
        "seed: 7\ndevice: cpu\ndata:\n  format: generated\n  train_samples: 512\n  test_samples: 40\n"
        "  pipeline: [shuffle, batch: {size: 128}, prefetch: {depth: 1, workers: 1}]\n"
        "model:\n  name: wide\n  input: [32, 32, 3]\n  layers:\n" +
            layers +
            "    - dropout: {rate: 0.2}\n    - global_average_pool\n    - dense: {units: 10}\n"
            "train: {optimizer: {adam: {learning_rate: 2.0e-3}}}\n");
  const std::vector<std::string> even = {"train.replicas=2", "data.pipeline.batch.size=128", "train.epochs=1"};
  std::vector<std::string> uneven = even;
  uneven.emplace_back("memory.limits={cpu: [200MiB, 100MiB]}");
  std::vector<std::string> plan = {"plan", "tiny.yaml", "--ranks", "2", "--json"};
  plan.insert(plan.end(), uneven.begin(), uneven.end());
  const Outcome planned = run(plan);
  ASSERT_EQ(planned.code, 0) << planned.err;
  std::istringstream lines(planned.out);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  const auto wide = nlohmann::json::parse(first), narrow = nlohmann::json::parse(second);
  EXPECT_EQ(wide["recompute"], "none");
  EXPECT_NE(narrow["recompute"], "none");
  EXPECT_LE(wide["pool_bytes"].get<std::int64_t>(), 200 << 20);
  EXPECT_GT(wide["pool_bytes"].get<std::int64_t>(), 100 << 20);
  EXPECT_LE(narrow["pool_bytes"].get<std::int64_t>(), 100 << 20);
  ASSERT_EQ(run(arguments("even", 2, even)).code, 0);
  const Outcome outcome = run(arguments("uneven", 2, uneven));  // a pool above its limit would be refused
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(weights("uneven") == weights("even"));
  const Outcome resumed = resume("uneven", 2, {"train.epochs=2"});
  EXPECT_EQ(resumed.code, 0) << "each rank chooses for its own limit again: " << resumed.err;
}

// GPUs need not be here. Each exchanges through a region that has all that its replicas come to.
TEST_F(Ranks, ArePlannedOnGpusToo) {
  const Outcome planned = run({"plan", "tiny.yaml", "--device", "h200", "--ranks", "2", "--json", "train.replicas=4",
                               "train.split=[3, 1]", "data.pipeline.batch.size=8"});
  ASSERT_EQ(planned.code, 0) << planned.err;
  std::istringstream lines(planned.out);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  const auto three = nlohmann::json::parse(first), one = nlohmann::json::parse(second);
  EXPECT_EQ(three["replicas"], 3);
  EXPECT_EQ(one["first_replica"], 3);
  EXPECT_GT(one["exchange_bytes"], 0) << "its region";
  EXPECT_GT(three["exchange_bytes"], one["exchange_bytes"]) << "two more sums wait in it";
  EXPECT_GE(three["pool_bytes"], three["exchange_bytes"]);
  const Outcome words = run({"plan", "tiny.yaml", "--device", "h200", "--ranks", "2", "train.replicas=2"});
  EXPECT_EQ(words.code, 0) << words.err;
  EXPECT_NE(words.out.find("on 2 ranks of h200"), std::string::npos) << words.out;
  EXPECT_EQ(run({"plan", "tiny.yaml", "--device", "h200", "--ranks", "2"}).code, 2) << "one replica";
}

TEST_F(Ranks, SayWhatTheyNeed) {
  const auto error_of = [&](int ranks, const std::vector<std::string>& more) {
    const Outcome outcome = run(arguments("run", ranks, more));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(path("run")));
    return outcome.err;
  };
  EXPECT_EQ(error_of(3, {"train.replicas=1"}),
            "bantam: error: 3 ranks need as many replicas or more, but train.replicas is 1: each rank computes whole "
            "replicas; set train.replicas=4 (a power of two), which is part of what the run computes\n");
  EXPECT_EQ(error_of(2, {"train.split=[1, 1, 2]"}),
            "bantam: error: train.split: [1, 1, 2] is for 3 ranks, but the run has 2 ranks; `even` and `auto` suit any "
            "number\n");
  EXPECT_EQ(error_of(2, {"train.split=[1, 2]"}),
            "bantam: error: train.split: [1, 2] are 3 replicas, but train.replicas is 4\n");
  EXPECT_EQ(error_of(2, {"memory.limits={cpu: [1GiB, 1GiB, 1GiB]}"}),
            "bantam: error: memory.limits: cpu has 3 limits, one for each rank, but the run has 2 ranks\n");
  EXPECT_EQ(error_of(1, {"memory.limits={cpu: [1GiB, 1GiB]}"}),
            "bantam: error: memory.limits: cpu has 2 limits, one for each rank, but the run has 1 rank\n");
  EXPECT_NE(error_of(2, {"memory.on_oom=accumulate_with_batch_norm"}).find("with several ranks say fail"),
            std::string::npos);
  EXPECT_NE(error_of(2, {"data.pipeline.0={cache: disk}"}).find("name a folder by cache: {disk: FOLDER}"),
            std::string::npos);
}

TEST_F(Ranks, AreJoinedWhenALauncherHasStartedThem) {
  ASSERT_EQ(run(arguments("whole", 2)).code, 0);
  std::vector<std::string> plain = arguments("run", 2);
  plain.erase(std::find(plain.begin(), plain.end(), "--ranks"), std::find(plain.begin(), plain.end(), "--ranks") + 2);
  const std::string port = std::to_string(free_port());
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 2; ++rank) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port.c_str(), 1);
    processes.push_back(start(plain));
  }
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    unsetenv(name);
  EXPECT_EQ(wait(processes[0]).code, 0) << read("stderr");
  EXPECT_EQ(wait(processes[1]).code, 0) << read("stderr");
  EXPECT_TRUE(weights("run") == weights("whole"));
  EXPECT_FALSE(std::filesystem::exists(path("runs"))) << "rank 1 has no folder";
}

}  // namespace
}  // namespace bantam::cli::ranks_test
