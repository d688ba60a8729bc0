// `bantam bench allocator`: a row an allocator and workload, figures that follow from each other, reasons for none.
#include <map>

#include "bantam/memory/device/device.h"
#include "tests/cli/program.h"

namespace bantam::cli::bench_allocator_test {
namespace {

class BenchAllocator : public ProgramTest {
 protected:
  BenchAllocator() { write("t.csv", "id,lower,upper,size\na,0,5,1000000\nb,5,9,3000000\nc,4,6,500000\nd,1,3,100\n"); }
  std::vector<nlohmann::json> rows(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"bench", "allocator", "--json", "--seconds", "0.01"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::vector<nlohmann::json> parsed;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) parsed.push_back(nlohmann::json::parse(line));
    return parsed;
  }
};

TEST_F(BenchAllocator, MeasuresATraceFromElsewhere) {
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& row : rows({"--trace", "t.csv", "--device", "cpu"})) by_name[row["allocator"]] = row;
  ASSERT_EQ(by_name.size(), 3u);
  for (const auto& [name, row] : by_name) {
    EXPECT_EQ(row["workload"], "t.csv");
    EXPECT_EQ(row["device"], "cpu");
    EXPECT_EQ(row["allocations"], 4);
    EXPECT_EQ(row["peak_live_bytes"], 3'500'000);
    EXPECT_GT(row["ns_per_pair"].get<double>(), 0.0) << name;
    EXPECT_GE(row["windows"].get<int>(), 3);
    EXPECT_DOUBLE_EQ(row["held_over_live"].get<double>(), row["peak_held_bytes"].get<double>() / 3.5e6);
  }
  EXPECT_GE(by_name["bantam"]["peak_held_bytes"].get<std::uint64_t>(), 3'500'000u);
  // b and c, each in whole pages.
  EXPECT_EQ(by_name["mmap"]["peak_held_bytes"], (3'000'000 + 4095) / 4096 * 4096 + (500'000 + 4095) / 4096 * 4096);
}

TEST_F(BenchAllocator, SaysWhyTheGpusRowsAreEmpty) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a GPU; the gpu tests look at its rows";
  const auto all = rows({"--trace", "t.csv"});
  ASSERT_EQ(all.size(), 6u);
  for (std::size_t i = 3; i < 6; ++i) {
    EXPECT_EQ(all[i]["device"], "cuda:0");
    EXPECT_FALSE(all[i]["error"].get<std::string>().empty());
    EXPECT_FALSE(all[i].contains("ns_per_pair"));
  }
  const Outcome words = run({"bench", "allocator", "--trace", "t.csv", "--seconds", "0.01"});
  EXPECT_EQ(words.code, 0) << words.err;
  EXPECT_NE(words.out.find("empty rows: cuda:0"), std::string::npos) << words.out;
  std::istringstream lines(words.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST_F(BenchAllocator, NamesWhatIsWrong) {
  EXPECT_EQ(run({"bench", "allocator", "--trace", "not-there.csv"}).code, 3);
  write("none.csv", "id,lower,upper,size\na,0,5,0\n");
  EXPECT_EQ(run({"bench", "allocator", "--trace", "none.csv"}).code, 3);
  EXPECT_EQ(run({"bench", "allocator", "--device", "tpu"}).code, 2);
}

}  // namespace
}  // namespace bantam::cli::bench_allocator_test
