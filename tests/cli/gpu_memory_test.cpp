// Profiles and allocator benches on a GPU: what is measured there is what was planned, and all rows are filled.
#include "bantam/memory/device.h"
#include "tests/cli/program.h"

namespace bantam::cli {
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
}  // namespace bantam::cli
