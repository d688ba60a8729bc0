// `bantam bench predict`: a row a batch size and precision, figures that follow from each other, and what is refused.
#include "tests/cli/program.h"

namespace bantam::cli::bench_predict_test {
namespace {

class BenchPredict : public ProgramTest {
 protected:
  BenchPredict() {
    write("net.yaml",
          "version: 1\n"
          "device: cpu\n"
          "precision: float32\n"
          "model:\n"
          "  input: [8, 8, 3]\n"
          "  layers:\n"
          "    - conv2d: {filters: 8, kernel: 3, bias: false}\n"
          "    - batch_norm: {activation: relu}\n"
          "    - global_average_pool\n"
          "    - dense: {units: 4}\n");
  }
};

TEST_F(BenchPredict, ARowIsACallOfABatchInAPrecision) {
  const Outcome outcome = run({"bench", "predict", "net.yaml", "--batch-sizes", "1,6", "--precision",
                               "float32,mixed_bfloat16", "--seconds", "0.01", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<nlohmann::json> rows;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(rows.size(), 4u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const nlohmann::json& row = rows[i];
    EXPECT_EQ(row["batch"], i % 2 == 0 ? 1 : 6);
    EXPECT_EQ(row["precision"], i < 2 ? "float32" : "mixed_bfloat16");
    EXPECT_EQ(row["device"], "cpu");
    EXPECT_GE(row["calls"].get<int>(), 10);
    EXPECT_GE(row["ms_99"].get<double>(), row["ms"].get<double>());
    EXPECT_NEAR(row["images_per_s"].get<double>() * row["ms"].get<double>(), 1e3 * row["batch"].get<double>(), 1e-6);
    EXPECT_GT(row["planned_bytes"].get<std::uint64_t>(), (3u * 9 * 8 + 8 * 4) * (i < 2 ? 4 : 2));
    EXPECT_FALSE(row.contains("resident_ms")) << "of GPUs alone";
  }
}

TEST_F(BenchPredict, PrintsATableAndNamesWhatIsWrong) {
  const Outcome table = run({"bench", "predict", "net.yaml", "--batch-sizes", "2", "--seconds", "0.01"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("batch type       ms     99 % images/s resident planned"), std::string::npos) << table.out;
  EXPECT_EQ(run({"bench", "predict", "net.yaml", "--batch-sizes", "0"}).code, 2);
  EXPECT_EQ(run({"bench", "predict", "net.yaml", "--precision", "float8"}).code, 2);
  EXPECT_EQ(run({"bench", "predict", "none.yaml"}).code, 2);
  const Outcome small =
      run({"bench", "predict", "net.yaml", "--batch-sizes", "4096", "--seconds", "0.01", "memory.limits={cpu: 1MiB}"});
  EXPECT_EQ(small.code, 4) << small.err;
}

}  // namespace
}  // namespace bantam::cli::bench_predict_test
