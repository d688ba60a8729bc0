// Profiles and allocator benches on a GPU: what is measured there is what was planned, and all rows are filled.
#include "bantam/memory/device/device.h"
#include "tests/cli/program.h"

namespace bantam::cli::gpu_memory_test {
namespace {

class GpuMemory : public ProgramTest {
 protected:
  GpuMemory() { write_tiny_config(); }
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  }
};

TEST_F(GpuMemory, AProfileMeasuresWhatWasPlanned) {
  for (const std::string precision : {"float32", "mixed_float16"}) {
    const Outcome outcome = run({"profile", "memory", "tiny.yaml", "--device", "cuda:0", "--precision", precision,
                                 "--out", precision, "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const nlohmann::json result = outcome.last_json();
    EXPECT_EQ(result["peak_bytes"], result["planned_peak_bytes"]);
    EXPECT_EQ(result["device"], "cuda:0");
    std::istringstream lines(read(precision + "/events.csv"));
    std::string line;
    std::size_t rows = 0;
    std::getline(lines, line);
    while (std::getline(lines, line)) ++rows;
    EXPECT_EQ(rows, result["events"].get<std::size_t>());
  }
}

// Timing loads the kernels of algorithms that are not taken in the end.
TEST_F(GpuMemory, AColdAlgorithmCacheChangesLittleAndNoLimit) {
  std::string config = read("tiny.yaml");
  config = config.substr(0, config.find("model:")) + "model: {zoo: resnet18_cifar, classes: 10}\ntrain: {epochs: 1}\n";
  write("deep.yaml", config);
  const nlohmann::json plan = run({"plan", "deep.yaml", "--device", "cuda:0", "--json"}).last_json();
  const auto planned = plan["process_bytes"].get<double>();
  const auto train_cold = [&](const std::string& name, const std::vector<std::string>& more) {
    ::setenv("BANTAM_ALGORITHM_CACHE", path(name + ".json").c_str(), 1);
    std::vector<std::string> arguments = {"train", "deep.yaml", "--device",   "cuda:0", "--run-dir",
                                          name,    "--json",    "--progress", "plain"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    ::unsetenv("BANTAM_ALGORITHM_CACHE");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  };
  const auto limit = [](std::uint64_t bytes) { return "memory.limits={\"cuda:0\": " + std::to_string(bytes) + "}"; };
  const auto is_near = [&](const nlohmann::json& end) {
    const auto measured = end["process_bytes"].get<double>();
    if (plan["profile_measured"].get<bool>()) {
      EXPECT_NEAR(planned, measured, std::max(0.01 * measured, 64.0 * (1 << 20))) << end["process_method"];
    }
  };
  is_near(train_cold("free", {}).last_json());
  EXPECT_FALSE(read("free.json").empty()) << "something was timed";
  const std::uint64_t roomy = std::uint64_t{2} << 30, tight = plan["process_bytes"].get<std::uint64_t>() + (48u << 20);
  const nlohmann::json bounded = train_cold("bounded", {limit(roomy)}).last_json();
  is_near(bounded);
  EXPECT_LE(bounded["process_bytes"].get<std::uint64_t>(), roomy);
  EXPECT_FALSE(read("bounded.json").empty()) << "the limit has room to time";
  const Outcome narrow = train_cold("narrow", {limit(tight)});
  EXPECT_LE(narrow.last_json()["process_bytes"].get<std::uint64_t>(), tight);
  EXPECT_NE(narrow.err.find("algorithms are not timed"), std::string::npos) << narrow.err;
}

TEST_F(GpuMemory, TheDriversAllocatorsAreMeasuredToo) {
  write("t.csv", "id,lower,upper,size\na,0,5,1000000\nb,5,9,3000000\nc,4,6,500000\nd,1,3,100\n");
  const Outcome outcome =
      run({"bench", "allocator", "--trace", "t.csv", "--device", "cuda:0", "--json", "--seconds", "0.05"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  int on_gpu = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    EXPECT_FALSE(row.contains("error")) << line;
    EXPECT_GT(row.value("ns_per_pair", 0.0), 0.0) << line;
    if (row["device"] != "cuda:0") continue;
    ++on_gpu;
    // cudaMalloc's is the fall of the card's free bytes, which others move too.
    if (row["allocator"] != "cudaMalloc") {
      EXPECT_GE(row["peak_held_bytes"].get<std::uint64_t>(), 3'500'000u) << line;
    }
  }
  EXPECT_EQ(on_gpu, 3);
}

}  // namespace
}  // namespace bantam::cli::gpu_memory_test
