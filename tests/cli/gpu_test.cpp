// The program on a GPU: same bits again, whatever prefetches, caches or recomputes; memory that adds up; limits that
// hold.
#include "bantam/memory/device/device.h"
#include "tests/cli/program.h"

namespace bantam::cli::gpu_test {
namespace {

class Gpu : public ProgramTest {
 protected:
  Gpu() { write_tiny_config(); }
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  }
  std::string weights(const std::string& name, std::vector<std::string> more) const {
    more.insert(more.end(), {"--device", "cuda:0"});
    const Outcome outcome = train(name, more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? read(name + "/weights.safetensors") : name;
  }
};

TEST_F(Gpu, SameSeedSameBits) {
  for (const std::string precision : {"float32", "mixed_float16", "mixed_bfloat16"}) {
    const auto run = [&](const std::string& name, std::vector<std::string> more) {
      more.insert(more.end(), {"--precision", precision});
      return weights(precision + name, more);
    };
    const std::string base = run("base", {});
    EXPECT_EQ(run("again", {}), base) << precision;
    EXPECT_EQ(run("workers_0", {"data.pipeline.prefetch.workers=0"}), base) << precision;
    EXPECT_EQ(run("workers_4", {"data.pipeline.prefetch.workers=4", "data.pipeline.prefetch.depth=5"}), base)
        << precision;
    EXPECT_EQ(run("recompute", {"recompute=all"}), base) << precision;
    EXPECT_NE(run("other_seed", {"--seed", "8"}), base) << precision;
  }
}

TEST_F(Gpu, AFinishedRunGoesOnToTheSameBits) {
  const std::string whole = weights("whole", {"train.epochs=2"});
  (void)weights("parts", {"train.epochs=1"});
  const Outcome more = run({"train", "--resume", "parts", "train.epochs=2", "--json", "--progress", "none"});
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(more.last_json()["device"], "cuda:0") << "the run's own configuration names its device";
  EXPECT_EQ(read("parts/weights.safetensors"), whole);
}

TEST_F(Gpu, RanksThatShareItHaveTheBitsOfOne) {
  const auto run = [&](const std::string& name, const std::string& gpus, std::vector<std::string> more) {
    more.insert(more.end(), {"train.replicas=2", "train.epochs=1", "--gpus", gpus});
    const Outcome outcome = train(name, more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? read(name + "/weights.safetensors") : name;
  };
  const std::string one = run("one", "1", {});
  EXPECT_EQ(run("two", "0,0", {}), one);
  EXPECT_EQ(run("two_planned", "0,0", {"train.mode=planned"}), one);
  const std::string halves = run("halves_one", "1", {"train.gradients=float16"});
  EXPECT_NE(halves, one);
  EXPECT_EQ(run("halves", "0,0", {"train.gradients=float16"}), halves);
}

TEST_F(Gpu, TheClosingObjectTellsOfHostMemoryToo) {
  const Outcome outcome = train("run", {"--device", "cuda:0"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json end = outcome.last_json();
  EXPECT_EQ(end["precision"], "mixed_float16") << "auto, on a GPU";
  EXPECT_GE(end["host_peak_bytes"].get<std::uint64_t>(), 256u * 32 * 32 * 3) << "the data set lies there";
}

TEST_F(Gpu, ARunTakesWhatWasPlanned) {
  const std::string batch = "{normalize: {scale: 0.004}}, {batch: {size: 16}}, {prefetch: {depth: auto}}]";
  for (const std::string first : {"data.pipeline=[", "data.pipeline=[{cache: device}, "})
    for (const char* precision : {"float32", "mixed_float16"}) {
      const std::vector<std::string> settings = {
          first + batch, "data.train_samples=250", "train.epochs=2", "--device", "cuda:0", "--precision", precision};
      const Outcome outcome = train(std::string("run-") + precision + std::to_string(first.size()), settings);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const auto end = outcome.last_json();
      EXPECT_EQ(end["peak_bytes"], end["planned_peak_bytes"]) << first << precision;
      EXPECT_EQ(end["pool_bytes"], end["planned_pool_bytes"]) << first << precision;
    }
}

TEST_F(Gpu, ThePlanTellsWhatTheDriverCounts) {
  const Outcome trained = train("run", {"--device", "cuda:0"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const nlohmann::json end = trained.last_json();
  const nlohmann::json plan = run({"plan", "tiny.yaml", "--device", "cuda:0", "--json"}).last_json();
  if (!plan["profile_measured"].get<bool>()) GTEST_SKIP() << "this GPU's profile is an estimate";
  const auto measured = end["process_bytes"].get<double>(), planned = plan["process_bytes"].get<double>();
  EXPECT_NEAR(planned, measured, std::max(0.01 * measured, 64.0 * (1 << 20))) << end["process_method"];
}

/// Captured steps, traced by the driver where CUPTI is installed: the parts add up, and the trace costs little.
TEST_F(Gpu, AProfiledStepIsTheStepThatTrains) {
  const Outcome outcome = run({"profile", "step", "tiny.yaml", "--device", "cuda:0", "--batch-size", "256", "--steps",
                               "5-20", "--json", "--out", "step.html", "--trace", "step.json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  double sum = json["gap_us"];
  for (const auto& operation : json["operations"]) sum += operation["us"].get<double>();
  const double step = json["step_us"];
  EXPECT_NEAR(sum, step, 1e-6 * step);
  EXPECT_LT(read("step.html").size(), 3u << 20);
  if (json["method"] == "device events") {
    EXPECT_FALSE(json["why_not_traced"].get<std::string>().empty());
    return;
  }
  EXPECT_EQ(json["method"], "driver trace");
  for (const auto& kernel : json["kernels"]) EXPECT_FALSE(kernel["device_kernel"].get<std::string>().empty()) << kernel;
}

TEST_F(Gpu, ALimitHoldsForTheProcessAndATooSmallOneIsRefusedWithNumbers) {
  const Outcome plain = train("plain", {"--device", "cuda:0"});
  const Outcome limited = train("limited", {"--device", "cuda:0", "memory.limits={\"cuda:0\": 1GiB}"});
  ASSERT_EQ(limited.code, 0) << limited.err;
  EXPECT_LE(limited.last_json()["process_bytes"].get<std::uint64_t>(), 1u << 30);
  EXPECT_EQ(read("limited/weights.safetensors"), read("plain/weights.safetensors")) << "a warm-up changes nothing";
  const Outcome refused = train("refused", {"--device", "cuda:0", "memory.limits={\"cuda:0\": 128MiB}"});
  EXPECT_EQ(refused.code, 4);
  EXPECT_NE(refused.err.find("CUDA context"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("needed"), std::string::npos) << refused.err;
}

TEST_F(Gpu, ABatchSolvedUnderALimitTrains) {
  for (const std::string limit : {"640MiB", "800MiB"}) {
    const Outcome outcome =
        train("run" + limit, {"--device", "cuda:0", "data.pipeline.batch.size=auto", "data.train_samples=60000",
                              "memory.limits={\"cuda:0\": " + limit + "}"});
    ASSERT_EQ(outcome.code, 0) << limit << outcome.err;
    EXPECT_LE(outcome.last_json()["process_bytes"].get<std::uint64_t>(), std::stoull(limit) << 20) << limit;
  }
}

TEST_F(Gpu, BenchMemoryAddsUpAndKeepsToTheLimit) {
  const Outcome outcome =
      run({"bench", "memory", "tiny.yaml", "--device", "cuda:0", "--batch-sizes", "16,16384", "--precision",
           "float32,mixed_float16", "--seconds", "0.05", "--json", "memory.limits={\"cuda:0\": 800MiB}"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  int rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (row["batch"] != 16) {
      EXPECT_EQ(row["error"], "does not fit");
      EXPECT_GT(row["needed_bytes"].get<std::uint64_t>(), 256u << 20);
      continue;
    }
    std::uint64_t sum = 0;
    for (const auto& [category, bytes] : row["by_category"].items()) sum += bytes.get<std::uint64_t>();
    EXPECT_EQ(sum, row["peak_bytes"].get<std::uint64_t>());
    EXPECT_LE(row["pool_bytes"].get<std::uint64_t>(), 700u << 20) << "the context counts";
  }
  EXPECT_EQ(rows, 4);
}

}  // namespace
}  // namespace bantam::cli::gpu_test
