// Rows of a bench: which cases the flags ask for, and the short forms that their tables have.
#include "bantam/cli/print/bench.h"

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::cli::bench_test {
namespace {

using BenchTest = run::RunTest;

TEST(CompactBytes, HasAtMostFiveCharacters) {
  const std::pair<std::uint64_t, const char*> wanted[] = {{0, "0B"},
                                                          {1023, "1023B"},
                                                          {1024, "1.00K"},
                                                          {1536, "1.50K"},
                                                          {10229, "9.99K"},
                                                          {10240, "10.0K"},
                                                          {102400, "100K"},
                                                          {1047552, "1023K"},
                                                          {1048064, "1.00M"},
                                                          {1048576, "1.00M"},
                                                          {std::uint64_t{141} << 30, "141G"},
                                                          {std::uint64_t{3} << 40, "3.00T"},
                                                          {std::uint64_t{3} << 50, "3.00P"}};
  for (const auto& [bytes, text] : wanted) EXPECT_EQ(compact_bytes(bytes), text) << bytes;
}

TEST(CompactRate, IsWholeWhereThatTakesSoFewDigits) {
  EXPECT_EQ(compact_rate(0), "0");
  EXPECT_EQ(compact_rate(2509.6), "2510");
  EXPECT_EQ(compact_rate(99999.4), "99999");
  EXPECT_EQ(compact_rate(99999.5), "100k");
  EXPECT_EQ(compact_rate(123456), "123k");
  EXPECT_EQ(compact_rate(2510, 3), "3k");
  EXPECT_EQ(compact_rate(999, 3), "999");
}

TEST(ShortName, IsThePeers) {
  EXPECT_EQ(short_name({PrecisionKind::float32}), "f32");
  EXPECT_EQ(short_name({PrecisionKind::mixed_float16}), "f16");
  EXPECT_EQ(short_name({PrecisionKind::mixed_bfloat16}), "bf16");
}

TEST(PolicyName, IsAutoWhereTheProgramChose) {
  StepCase row{.recompute = {RecomputeOptions::Kind::all}};
  EXPECT_EQ(policy_name(row), "all");
  row.predicted_extra = 0.04;
  EXPECT_EQ(policy_name(row), "auto");
}

TEST_F(BenchTest, ARowIsACaseByPrecisionThenRecomputeThenBatch) {
  const RunConfig config = tiny();
  BenchOptions options;
  options.batch_sizes = "4,8";
  options.precisions = "float32,mixed_bfloat16";
  options.recompute = "none,all";
  options.modes = "planned";
  const std::vector<StepCase> rows = bench_cases(config, options, plan_target(config, {}));
  ASSERT_EQ(rows.size(), 8u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].batch, i % 2 == 0 ? 4 : 8) << i;
    EXPECT_EQ(to_string(rows[i].recompute), i / 2 % 2 == 0 ? "none" : "all") << i;
    EXPECT_EQ(to_string(rows[i].precision), i < 4 ? "float32" : "mixed_bfloat16") << i;
    EXPECT_FALSE(rows[i].predicted_extra.has_value()) << i;
  }
}

TEST_F(BenchTest, WithoutFlagsThereIsTheConfigurationsOwnCase) {
  const RunConfig config = tiny();
  const std::vector<StepCase> rows = bench_cases(config, {.modes = "planned"}, plan_target(config, {}));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].batch, 16);
  EXPECT_EQ(to_string(rows[0].recompute), "none");
}

TEST_F(BenchTest, AWrongFlagIsNamed) {
  const RunConfig config = tiny();
  const auto refused = [&](const BenchOptions& options) {
    try {
      (void)read_grid(config, options, 0);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({.batch_sizes = "16,x"}).rfind("--batch-sizes: ", 0), 0u);
  EXPECT_EQ(refused({.precisions = "float8"}).rfind("--precision: ", 0), 0u);
  EXPECT_EQ(refused({.recompute = "block9"}).rfind("--recompute: ", 0), 0u);
  EXPECT_EQ(refused({.recompute = "auto"}).rfind("--recompute auto: ", 0), 0u) << "there are no bytes to fit";
  EXPECT_EQ(refused({.modes = "fast"}).rfind("--mode: ", 0), 0u);
}

}  // namespace
}  // namespace bantam::cli::bench_test
