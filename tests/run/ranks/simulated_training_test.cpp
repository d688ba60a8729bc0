// Whole trainings on simulated ranks with faults: every run ends, and what is resumed ends with an undisturbed run's
// bits. BANTAM_SIMULATED_RUNS=N runs N seeds (nightly more than usual); BANTAM_SIMULATED_RUN=S runs seed S alone.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

#include "bantam/base/error.h"
#include "bantam/base/sha256.h"
#include "bantam/engine/comm/simulator.h"
#include "bantam/run/train/run_directory.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::simulated_training_test {
namespace {

namespace fs = std::filesystem;

std::uint64_t setting(const char* name, std::uint64_t usual) {
  const char* value = std::getenv(name);
  return value == nullptr ? usual : std::strtoull(value, nullptr, 10);
}

class SimulatedTraining : public RunTest {
 protected:
  /// An epoch is 3 updates of 4 replicas; rank 0 saves after each.
  static RunConfig config() {
    return tiny({"train.replicas=4", "data.pipeline.batch.size=8", "train.epochs=3",
                 "checkpoint={every: 1updates, min_interval: 0s}", "train.ema={decay: 0.9}"});
  }
  /// One rank of a session: the first begins the run of this name, or goes on with it.
  void run_rank(const std::string& name, Communicator* ranks, int rank) const {
    const TrainOptions options{.threads = 1, .folder = path(name)};
    RunHooks hooks{.ranks = {.link = ranks}};
    if (rank > 0) {
      (void)train_worker(options, hooks);
      return;
    }
    std::error_code error;
    std::optional<RunDirectory> folder;
    if (fs::exists(path(name) / "config.yaml", error)) folder.emplace(RunDirectory::open(path(name)));
    if (folder) hooks.resume = &*folder;
    (void)train(folder ? read_run_config(folder->config(), {}) : config(), options, {}, hooks);
  }
  std::string digest(const std::string& name) const { return sha256_of(read_file(path(name) / "weights.safetensors")); }
  std::vector<nlohmann::json> metrics(const std::string& name) const {
    return lines_without_clock(read_file(path(name) / "metrics.jsonl"));
  }
};

TEST_F(SimulatedTraining, EveryRunEndsAndGoesOnToTheSameBits) {
  run_rank("whole", nullptr, 0);
  const std::string whole = digest("whole");
  const std::uint64_t only = setting("BANTAM_SIMULATED_RUN", 0), seeds = setting("BANTAM_SIMULATED_RUNS", 20);
  std::map<std::string, int> ends;
  for (std::uint64_t seed = only > 0 ? only : 1; seed <= (only > 0 ? only : seeds); ++seed) {
    const std::string name = "run" + std::to_string(seed);
    const int ranks = 2 + static_cast<int>(seed % 3);
    const SimulationOptions options{.world = {.most_faults = 2, .fault_calls = 1500}};
    const SimulatedRun simulated =
        run_simulated(seed, ranks, options, [&](Communicator& link, int rank) { run_rank(name, &link, rank); });
    ASSERT_EQ(simulated.wrong(), "") << "replay: BANTAM_SIMULATED_RUN=" << seed;
    if (simulated.culprits.empty()) {
      EXPECT_TRUE(simulated.all_done()) << seed;
    }
    ++ends[simulated.all_done() ? "done" : "stopped"];
    // Another number of ranks goes on, undisturbed.
    const SimulatedRun resumed =
        run_simulated(seed, 5 - ranks + 1, {}, [&](Communicator& link, int rank) { run_rank(name, &link, rank); });
    ASSERT_TRUE(resumed.all_done()) << resumed.wrong() << "\nreplay: BANTAM_SIMULATED_RUN=" << seed;
    ASSERT_EQ(digest(name), whole) << "replay: BANTAM_SIMULATED_RUN=" << seed;
    EXPECT_EQ(metrics(name), metrics("whole")) << "replay: BANTAM_SIMULATED_RUN=" << seed;
    fs::remove_all(path(name));
  }
  for (const auto& [end, count] : ends) std::printf("%d %s\n", count, end.c_str());
  if (only == 0) {
    EXPECT_GT(ends["done"], 0);
    EXPECT_GT(ends["stopped"], 0);
  }
}

}  // namespace
}  // namespace bantam::run::simulated_training_test
