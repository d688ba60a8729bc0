// Rows as JSON: the keys that scripts read, exact bytes, rounded times; and the table of a process beside them.
#include "bantam/cli/print/step_json.h"

#include "bantam/base/byte_size.h"
#include "bantam/cli/print/process_table.h"
#include "tests/run/run_fixture.h"

namespace bantam::cli::step_json_test {
namespace {

using Json = nlohmann::ordered_json;
using StepJsonTest = run::RunTest;

std::vector<std::string> keys_of(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

/// A GPU with 300 MiB of overhead in two lines.
PlanTarget gpu() {
  return {.profile = {.name = "mine",
                      .overhead = {{"context", std::uint64_t{200} << 20}, {"kernels", std::uint64_t{100} << 20}},
                      .measured = true},
          .counts = true};
}

TEST_F(StepJsonTest, DescribesACase) {
  const RunConfig config = tiny();
  const Json json =
      describe(config, {.batch = 8, .precision = config.precision, .recompute = {RecomputeOptions::Kind::all}});
  EXPECT_EQ(json,
            (Json{{"model", "tiny"}, {"batch", 8}, {"precision", "float32"}, {"recompute", "all"}, {"device", "cpu"}}));
}

TEST(StepJson, BytesAreExactAndByCategory) {
  MemoryStats memory;
  memory.peak_bytes = 123456789;
  memory.peak_pool_bytes = 134217728;
  memory.by_category_at_peak[Category::parameter] = 3;
  memory.by_category_at_peak[Category::activation] = 123456786;
  Json row;
  add_memory(row, memory);
  EXPECT_EQ(row["peak_bytes"], 123456789);
  EXPECT_EQ(row["pool_bytes"], 134217728);
  EXPECT_EQ(row["by_category"].size(), kCategories);
  EXPECT_EQ(row["by_category"]["parameter"], 3);
  EXPECT_EQ(row["by_category"]["activation"], 123456786);
  std::uint64_t sum = 0;
  for (const auto& [name, bytes] : row["by_category"].items()) sum += bytes.get<std::uint64_t>();
  EXPECT_EQ(sum, memory.peak_bytes);
}

TEST(StepJson, TimesAreRounded) {
  Json row;
  add_timing(row, {.ms_per_step = 1.23456789, .images_per_s = 12345.6, .windows = 7});
  EXPECT_EQ(row, (Json{{"ms_per_step", 1.2346}, {"images_per_s", 12346.0}, {"windows", 7}})) << "nothing was captured";
  add_timing(row, {.ms_per_step = 1, .images_per_s = 1, .windows = 1, .kernels = 42});
  EXPECT_EQ(row["kernels"], 42.0);
}

TEST(StepJson, LimitsNameTheLongestOfThree) {
  Json row;
  add_limits(row, {.bytes_ms = 2.0, .flops_ms = 0.5, .chain_ms = 1.0}, 3.0);
  EXPECT_EQ(keys_of(row), (std::vector<std::string>{"floor_ms", "floor_bound", "bytes_ms", "flops_ms", "chain_ms",
                                                    "ratio_to_floor"}));
  EXPECT_EQ(row["floor_ms"], 2.0);
  EXPECT_EQ(row["floor_bound"], "bytes");
  EXPECT_EQ(row["ratio_to_floor"], 1.5);
}

TEST(StepJson, AProcessIsItsOverheadAndWholePages) {
  Json row;
  add_process(row, gpu(), (std::uint64_t{1} << 20) + 1);
  EXPECT_EQ(row["profile"], "mine");
  EXPECT_EQ(row["profile_measured"], true);
  EXPECT_EQ(row["overhead"], (Json{{"context", 200 << 20}, {"kernels", 100 << 20}}));
  EXPECT_EQ(row["overhead_bytes"], 300 << 20);
  EXPECT_EQ(row["process_bytes"], 302 << 20) << "a pool's page has 2 MiB";
  Json cpu;
  add_process(cpu, {.profile = {.name = "cpu"}}, 1000);
  EXPECT_TRUE(cpu.empty()) << "only pools count there";
}

TEST(ProcessTable, AddsUpToTheLeastLimit) {
  const std::string text = process_table(gpu(), std::uint64_t{50} << 20);
  const std::uint64_t process = std::uint64_t{350} << 20;
  for (const std::string& part :
       {std::string("mine (measured)"), std::string("context"), std::string("kernels"),
        format_byte_size(std::uint64_t{50} << 20), format_byte_size(process), format_byte_size(kLateReserve),
        format_byte_size(process + kLateReserve), std::string("--memory")})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in" << text;
}

TEST(ProcessTable, WithoutAPoolIsWhatComesBesidesIt) {
  const std::string text = process_table(gpu(), std::nullopt);
  EXPECT_NE(text.find(format_byte_size((std::uint64_t{300} << 20) + kLateReserve)), std::string::npos) << text;
  EXPECT_EQ(text.find("--memory"), std::string::npos) << text;
  EXPECT_EQ(process_table({.profile = {.name = "cpu"}}, 1000), "") << "only pools count there";
}

}  // namespace
}  // namespace bantam::cli::step_json_test
