// `bantam plan`: tables, JSON, limits and traces from elsewhere.
#include <array>
#include <map>

#include <fmt/format.h>

#include "bantam/memory/device/device.h"
#include "tests/cli/program.h"
#include "tests/packing/planner_instances.h"

namespace bantam::cli::plan_test {
namespace {

class Plan : public ProgramTest {
 protected:
  Plan() { write_tiny_config(); }
  static std::string config(const std::string& name) { return BANTAM_SOURCE_DIR "/configs/" + name; }
  static std::vector<nlohmann::json> objects(const std::string& text) {
    std::vector<nlohmann::json> rows;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }
};

TEST_F(Plan, RowsAddUpToTheByte) {
  const Outcome outcome = run({"plan", "tiny.yaml", "--batch-sizes", "4,16", "--precision", "float32,mixed_float16",
                               "--recompute", "none,middle", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = objects(outcome.out);
  ASSERT_EQ(rows.size(), 8u);
  for (const auto& row : rows) {
    std::uint64_t categories = 0, holders = 0;
    for (const auto& [category, bytes] : row["by_category"].items()) categories += bytes.get<std::uint64_t>();
    for (const auto& holder : row["holders"]) holders += holder["bytes"].get<std::uint64_t>();
    const auto peak = row["peak_bytes"].get<std::uint64_t>();
    EXPECT_EQ(categories, peak);
    EXPECT_EQ(holders, peak);
    EXPECT_EQ(row["persistent_bytes"].get<std::uint64_t>() + row["max_live_bytes"].get<std::uint64_t>(),
              row["step_peak_bytes"].get<std::uint64_t>());
    EXPECT_GE(row["arena_bytes"].get<std::uint64_t>(), row["max_live_bytes"].get<std::uint64_t>());
    EXPECT_FALSE(row.contains("fits"));
    EXPECT_FALSE(row.contains("not_counted")) << "on the CPU everything counts";
  }
  EXPECT_EQ(rows[0]["batch"], 4);
  EXPECT_GT(rows[1]["peak_bytes"].get<std::uint64_t>(), rows[0]["peak_bytes"].get<std::uint64_t>());
}

TEST_F(Plan, ColumnsStandUnderTheirTitlesForAnyBatch) {
  const Outcome outcome = run({"plan", "tiny.yaml", "--batch-sizes", "16,200000", "--recompute", "none"});
  std::istringstream lines(outcome.out);
  std::vector<std::string> table;
  for (std::string line; std::getline(lines, line) && table.size() < 4;) table.push_back(line);
  ASSERT_EQ(table.size(), 4u) << outcome.out << outcome.err;
  EXPECT_EQ(table[1].size(), table[2].size()) << outcome.out;
  EXPECT_EQ(table[1].size(), table[3].size()) << outcome.out;
}

// The best points are those that no other beats; each is planned as a row of its own is.
TEST_F(Plan, ACurveTradesBytesForTime) {
  const Outcome outcome = run({"plan", config("cifar10_resnet18.yaml"), "--device", "t4", "--precision",
                               "mixed_float16", "--batch-sizes", "64,128", "--curve", "--json", "--out", "curve.html"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = objects(outcome.out);
  ASSERT_GT(rows.size(), 4u);
  int knees = 0;
  for (const auto& row : rows) {
    bool beaten = false;
    for (const auto& other : rows)
      beaten |= other["needed_bytes"] < row["needed_bytes"] &&
                other["predicted_images_per_s"] > row["predicted_images_per_s"];
    EXPECT_FALSE(beaten && row["best"].get<bool>()) << row;
    knees += row["knee"] == true;
    EXPECT_GT(row["needed_bytes"], row["peak_bytes"]) << "context and libraries";
  }
  EXPECT_EQ(knees, 1);
  EXPECT_EQ(rows[0]["recompute"], "none");
  const Outcome row = run({"plan", config("cifar10_resnet18.yaml"), "--device", "t4", "--precision", "mixed_float16",
                           "--batch-sizes", "64", "--recompute", "none", "--json"});
  EXPECT_EQ(row.last_json()["predicted_ms"], rows[0]["predicted_ms"]);
  EXPECT_EQ(row.last_json()["needed_bytes"], rows[0]["needed_bytes"]);
  const std::string page = read("curve.html");
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos) << "no part is missing";

  const Outcome table = run({"plan", "tiny.yaml", "--curve"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("\nKnee: "), std::string::npos) << table.out;
  const Outcome again = run({"plan", "tiny.yaml", "--curve", "--out", "curve.html"});
  EXPECT_EQ(again.code, 2) << again.err;
  EXPECT_NE(again.err.find("--overwrite"), std::string::npos) << again.err;
  EXPECT_EQ(run({"plan", "tiny.yaml", "--curve", "--recompute", "all"}).code, 2);
  EXPECT_EQ(run({"plan", "tiny.yaml", "--out", "x.html"}).code, 2) << "a page of nothing";
}

TEST_F(Plan, ARunWithoutABatchIsSaidToBeNone) {
  const Outcome outcome = run({"plan", "tiny.yaml", "--batch-sizes", "1000"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("No whole run: 256 samples make no batch, and drop_last drops them"), std::string::npos)
      << outcome.out;
}

TEST_F(Plan, IsWhatBenchMemoryMeasures) {
  for (const char* accumulate : {"1", "3"}) {
    const std::string override = std::string("train.accumulate=") + accumulate;
    const auto planned = run({"plan", "tiny.yaml", override, "--json"}).last_json();
    const Outcome measured =
        run({"bench", "memory", "tiny.yaml", override, "--seconds", "0.01", "--threads", "1", "--json"});
    ASSERT_EQ(measured.code, 0) << measured.err;
    const auto row = measured.last_json();
    EXPECT_EQ(row["planned_peak_bytes"], row["peak_bytes"]);
    EXPECT_EQ(planned["peak_bytes"], row["peak_bytes"]);
    EXPECT_EQ(planned["by_category"], row["by_category"]);
  }
}

/// A pipeline whose epochs of 250 images end with a batch of 10, and evaluations of 40 with one of 8.
constexpr const char* kShortBatches =
    "data.pipeline=[{shuffle: {}}, {normalize: {scale: 0.004}}, {batch: {size: 16}}, {prefetch: {depth: auto, "
    "workers: auto}}]";

TEST_F(Plan, IsWhatAWholeRunTakes) {
  const std::vector<std::vector<std::string>> runs = {
      {},
      {"train.epochs=2", "train.accumulate=3", kShortBatches, "data.train_samples=250"},
      {"train.accumulate=16", kShortBatches, "data.train_samples=250"},
      {"train.evaluate=false", "recompute=all", "precision=mixed_float16"},
      {"train.epochs=3", kShortBatches, "data.train_samples=17", "data.test_samples=300"},
      {"data.pipeline=[{batch: {size: 60}}, {prefetch: {depth: 1, workers: 0}}]", "train.accumulate=2"},
      {"data.pipeline=[{cache: device}, {batch: {size: 9}}, {prefetch: {depth: 5, workers: 2}}]"},
      {"data.pipeline=[{cache: off}, {batch: {size: 24}}, {prefetch: {depth: 2, workers: 1}}]", "train.epochs=2"},
      {"data.pipeline=[{cache: off}, {batch: {size: 9}}, {prefetch: {depth: auto, workers: 0}}]"}};
  int number = 0;
  for (const auto& overrides : runs) {
    std::vector<std::string> arguments = {"plan", "tiny.yaml", "--json"};
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    const auto planned = run(arguments).last_json()["run"];
    // A limit of just the planned pool: the run must get by with it.
    std::vector<std::string> more = overrides;
    more.push_back("memory.limits={cpu: " + planned["pool_bytes"].dump() + "}");
    const Outcome outcome = train("run" + std::to_string(number++), more);
    ASSERT_EQ(outcome.code, 0) << number << outcome.err;
    const auto end = outcome.last_json();
    EXPECT_EQ(planned["peak_bytes"], end["peak_bytes"]) << number;
    EXPECT_EQ(planned["by_category"], end["by_category"]) << number;
    EXPECT_EQ(planned["pool_bytes"], end["pool_bytes"]) << number;
    EXPECT_EQ(end["planned_peak_bytes"], end["peak_bytes"]) << number;
    EXPECT_EQ(end["planned_pool_bytes"], end["pool_bytes"]) << number;
    constexpr double kPage = 64 << 10;  // the last one need not be full
    EXPECT_LE(planned["pool_bytes"].get<double>(), 1.02 * planned["peak_bytes"].get<double>() + kPage) << number;
  }
}

TEST_F(Plan, ALimitOfTheStepsPoolIsEnough) {
  const auto step = run({"plan", "tiny.yaml", "--json"}).last_json();
  const auto limit = [](const nlohmann::json& bytes) { return "memory.limits={cpu: " + bytes.dump() + "}"; };
  const std::vector<std::string> bench = {"bench", "memory", "tiny.yaml", "--seconds", "0.01", "--threads", "1"};
  std::vector<std::string> enough = bench, short_of = bench;
  enough.insert(enough.end(), {"--json", limit(step["pool_bytes"])});
  const auto row = run(enough).last_json();
  EXPECT_EQ(row["pool_bytes"], step["pool_bytes"]) << row.dump();
  EXPECT_EQ(row["peak_bytes"], step["peak_bytes"]);
  short_of.push_back(limit(step["peak_bytes"].get<std::uint64_t>() - 256));
  EXPECT_EQ(run(short_of).code, 4);
}

TEST_F(Plan, TrainSaysWhatWasPlanned) {
  const Outcome outcome = run({"train", "tiny.yaml", "--run-dir", "run", "--threads", "1", "--progress", "plain"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("planned: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("in use at the peak (as planned)"), std::string::npos) << outcome.out;
}

TEST_F(Plan, BenchMemoryShowsTheDifference) {
  const Outcome outcome = run({"bench", "memory", "tiny.yaml", "--seconds", "0.01", "--threads", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("diff"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("    0 "), std::string::npos) << outcome.out;
}

TEST_F(Plan, TheZooNeedsNoMoreThanItsLiveBytes) {
  for (const char* name : {"cifar10_separable.yaml", "resnet18_cifar10.yaml", "mobilenet_v1.yaml", "resnet50.yaml"}) {
    const Outcome outcome = run({"plan", config(name), "--device", "cuda:0", "--precision", "float32,mixed_float16",
                                 "--recompute", "none,cheap,all", "--batch-sizes", "64", "--seconds", "10",
                                 "--json"});  // time for tests that share their cores: the default is 1
    ASSERT_EQ(outcome.code, 0) << name << outcome.err;
    const auto rows = objects(outcome.out);
    ASSERT_EQ(rows.size(), 6u);
    for (const auto& row : rows) {
      const auto arena = row["arena_bytes"].get<double>(), live = row["max_live_bytes"].get<double>();
      EXPECT_LE(arena, 1.01 * live) << row["model"] << row["precision"] << row["recompute"];
    }
  }
}

TEST_F(Plan, WordsSayWhereThePeakIsAndWhatIsNotCounted) {
  const Outcome cpu = run({"plan", "tiny.yaml"});
  ASSERT_EQ(cpu.code, 0) << cpu.err;
  EXPECT_NE(cpu.out.find("reached in"), std::string::npos) << cpu.out;
  EXPECT_NE(cpu.out.find("alive at the peak"), std::string::npos) << cpu.out;
  EXPECT_EQ(cpu.out.find("context"), std::string::npos) << cpu.out;
  const Outcome cuda = run({"plan", config("resnet50.yaml"), "--device", "cuda:3", "--memory", "80GiB"});
  ASSERT_EQ(cuda.code, 0) << cuda.err;
  EXPECT_NE(cuda.out.find("CUDA context"), std::string::npos) << cuda.out;
  std::istringstream lines(cpu.out + cuda.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 90u) << line;
}

TEST_F(Plan, CountsTheProcessOnAGpuByNamedLines) {
  const auto row = run({"plan", "tiny.yaml", "--device", "h200", "--json"}).last_json();
  EXPECT_EQ(row["device"], "cuda:0");
  EXPECT_EQ(row["profile"], "h200");
  EXPECT_TRUE(row["profile_measured"].get<bool>());
  std::uint64_t sum = 0;
  for (const auto& [name, bytes] : row["overhead"].items()) sum += bytes.get<std::uint64_t>();
  EXPECT_EQ(row["overhead_bytes"], sum);
  EXPECT_EQ(row["overhead"]["CUDA context"], 518u << 20);
  const auto pool = row["process_bytes"].get<std::uint64_t>() - sum;
  EXPECT_GE(pool, row["peak_bytes"].get<std::uint64_t>());
  EXPECT_LT(pool, row["peak_bytes"].get<std::uint64_t>() + (2u << 20));
  const Outcome t4 = run({"plan", "tiny.yaml", "--device", "t4", "--batch-sizes", "8,16"});
  EXPECT_NE(t4.out.find("process on t4 (estimate)"), std::string::npos) << t4.out;
  EXPECT_FALSE(run({"plan", "tiny.yaml", "--device", "cpu", "--json"}).last_json().contains("process_bytes"));
}

TEST_F(Plan, CardsGoByAnySpellingAndTheirTimesAreEstimates) {
  const Outcome words = run({"plan", "tiny.yaml", "--device", "GeForce RTX 3060"});
  EXPECT_NE(words.out.find("tiny on rtx3060 (estimate)"), std::string::npos) << words.out;
  const auto row = run({"plan", "tiny.yaml", "--device", "RTX3060", "--json"}).last_json();
  EXPECT_EQ(row["profile"], "rtx3060");
  EXPECT_TRUE(row["estimate"].get<bool>());
  EXPECT_FALSE(run({"plan", "tiny.yaml", "--device", "h200", "--json"}).last_json().contains("estimate"));
  const Outcome explained = run({"explain", "tiny.yaml", "--device", "rtx3060"});
  EXPECT_NE(explained.out.find("us ±40%"), std::string::npos) << explained.out;
  EXPECT_NE(explained.out.find("The rates of rtx3060 are an estimate"), std::string::npos) << explained.out;
  EXPECT_EQ(run({"explain", "tiny.yaml", "--device", "h200"}).out.find("±"), std::string::npos);
  const Outcome trained = run({"train", "tiny.yaml", "--device", "rtx3060", "--run-dir", "r"});
  EXPECT_EQ(trained.code, 2);
  EXPECT_NE(trained.err.find("bantam plan CONFIG --device rtx3060"), std::string::npos) << trained.err;
  const Outcome listed = run({"devices", "--profiles"});
  EXPECT_NE(listed.out.find("rtx4070-laptop"), std::string::npos) << listed.out;
}

TEST_F(Plan, WithoutAGpuAStandInIsSaid) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "plans are of this machine's GPU";
  const Outcome cuda = run({"plan", "tiny.yaml", "--device", "cuda"});
  EXPECT_EQ(cuda.code, 0) << cuda.err;
  EXPECT_NE(cuda.out.find("cuda:0 is not in this machine: planned for a stand-in, the h200"), std::string::npos)
      << cuda.out;
  EXPECT_EQ(run({"plan", "tiny.yaml", "--device", "cuda", "--json"}).last_json()["stand_in"], "h200");
  write("open.yaml", [&] {
    std::string text = read("tiny.yaml");
    for (std::size_t at = text.find("device: cpu\n"); at != std::string::npos; at = text.find("device: cpu\n"))
      text.erase(at, 12);
    return text;
  }());
  const Outcome bytes = run({"plan", "open.yaml", "--memory", "8GiB"});
  EXPECT_EQ(bytes.code, 0) << bytes.err;
  EXPECT_NE(bytes.out.find("a GPU of 8.00 GiB stands in"), std::string::npos) << bytes.out;
  EXPECT_NE(bytes.out.find("to fit a process of 8.00 GiB"), std::string::npos) << bytes.out;
  const Outcome cpu = run({"plan", "open.yaml", "--memory", "8GiB", "--device", "cpu"});
  EXPECT_NE(cpu.out.find("to fit a pool of 8.00 GiB"), std::string::npos) << cpu.out;
}

TEST_F(Plan, ALimitOnAGpuHasToHoldTheOverheadToo) {
  write("mine.json", R"({"name": "mine", "compute_capability": 86, "multiprocessors": 10, "total_bytes": 8589934592,
    "overhead": {"CUDA context": 104857600}, "copy_bytes_per_s": 1.0e11, "float32_flops_per_s": 1.0e12,
    "float16_flops_per_s": 1.0e12})");
  const auto fits = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan", "tiny.yaml", "--profile", "mine.json", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.err, "");
    return outcome.last_json()["fits"].get<bool>();
  };
  EXPECT_FALSE(fits({"--memory", "100MiB"})) << "the context alone";
  EXPECT_TRUE(fits({"--memory", "140MiB"}));
  EXPECT_TRUE(fits({"memory.limits={\"cuda:0\": 140MiB}"}));
  EXPECT_TRUE(fits({"memory.logical={\"cuda:0\": [32MiB]}", "--device", "cuda:0/0"})) << "a share bounds its pool";
  EXPECT_FALSE(fits({"memory.logical={\"cuda:0\": [1MiB]}", "--device", "cuda:0/0"}));
  write("bad.json", "{\"name\": \"mine\"}");
  EXPECT_EQ(run({"plan", "tiny.yaml", "--profile", "bad.json"}).code, 2);
}

TEST_F(Plan, SaysWhetherItFits) {
  const auto fits = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan", "tiny.yaml", "--batch-sizes", "4,4096", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto rows = objects(run(arguments).out);
    return std::pair{rows.at(0)["fits"].get<bool>(), rows.at(1)["fits"].get<bool>()};
  };
  EXPECT_EQ(fits({"--memory", "16MiB"}), std::pair(true, false));
  EXPECT_EQ(fits({"memory.limits={cpu: 16MiB}"}), std::pair(true, false));
  EXPECT_EQ(fits({"--memory", "64GiB"}), std::pair(true, true));
  EXPECT_EQ(run({"plan", "tiny.yaml", "--memory", "64KiB"}).code, 4);
  EXPECT_EQ(run({"plan", "tiny.yaml", "--memory", "64 parsecs"}).code, 2);
}

TEST_F(Plan, SolvesTracesFromElsewhere) {
  // Columns in another order, one that is not known, Windows line ends and a blank line.
  write("t.csv", "size,id,lower,note,upper\r\n100,a,0,x,5\r\n100,b,5,x,9\r\n\r\n50,c,4,x,6\r\n");
  const Outcome outcome = run({"plan", "--trace", "t.csv", "--offsets", "o.csv", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = outcome.last_json();
  EXPECT_EQ(json["max_live_bytes"], 150);
  EXPECT_EQ(json["arena_bytes"], 150);
  EXPECT_EQ(json["ids"], nlohmann::json({"a", "b", "c"}));
  EXPECT_EQ(json["offsets"][0], json["offsets"][1]);
  EXPECT_GE(json["seconds"].get<double>(), 0.0);
  const std::string offsets = read("o.csv");
  EXPECT_EQ(offsets.rfind("id,lower,upper,size,offset\na,0,5,100,", 0), 0u) << offsets;
  const Outcome words = run({"plan", "--trace", "t.csv", "--capacity", "200"});
  EXPECT_EQ(words.code, 0);
  EXPECT_NE(words.out.find("arena_bytes     150"), std::string::npos) << words.out;
  EXPECT_EQ(run({"plan", "--trace", "t.csv", "--capacity", "149", "--seconds", "0.1"}).code, 4);
}

// Traces as MiniMalloc's: the lower bound is the capacity, and a plan a thousandth above it does not fit.
TEST_F(Plan, ATracesCapacityIsHonoured) {
  const testing::HardInstance trace = testing::sectioned_trace(1, 1, 150, 1 << 20, 1024);
  std::string text = "id,lower,upper,size\n";
  for (const PlannerBuffer& b : trace.buffers) text += fmt::format("{},{},{},{}\n", b.id, b.lower, b.upper, b.size);
  write("t.csv", text);
  const Outcome outcome = run({"plan", "--trace", "t.csv", "--capacity", "1048576", "--seconds", "100", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto json = outcome.last_json();
  EXPECT_EQ(json["arena_bytes"], 1 << 20);
  EXPECT_EQ(json["fits"], true);
}

TEST_F(Plan, NamesTheLineOfABrokenTrace) {
  const auto error = [&](const std::string& text) {
    write("bad.csv", text);
    const Outcome outcome = run({"plan", "--trace", "bad.csv"});
    EXPECT_EQ(outcome.code, 3) << text;
    return outcome.err;
  };
  EXPECT_NE(error("id,lower,upper,size\na,0,5,x\n").find("bad.csv:2: error: size: expected a whole number"),
            std::string::npos);
  EXPECT_NE(error("id,lower,upper,size\na,0,5,1\nb,5,5,1\n").find("bad.csv:3: error: lower must be below upper"),
            std::string::npos);
  EXPECT_NE(error("id,lower,size\n").find("no column 'upper'"), std::string::npos);
  EXPECT_NE(error("id,lower,upper,size\na,0,5\n").find("expected 4 values, got 3"), std::string::npos);
  EXPECT_NE(error("").find("the file is empty"), std::string::npos);
  EXPECT_NE(
      error("id,lower,upper,size\na,0,5,1\nb,0,5,1\na,5,9,1\n").find("bad.csv:4: error: id: 'a' is taken by line 2"),
      std::string::npos);
}

TEST_F(Plan, TracesOfSpreadsheetsAreRead) {
  write("t.csv", "\xef\xbb\xbfid,lower,upper,size\na,0,5,100\n");
  const Outcome outcome = run({"plan", "--trace", "t.csv"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("t.csv: 1 buffer\n"), std::string::npos) << outcome.out;
}

TEST_F(Plan, AsksForOneThing) {
  EXPECT_EQ(run({"plan"}).code, 2);
  EXPECT_EQ(run({"plan", "tiny.yaml", "--trace", "t.csv"}).code, 2);
  EXPECT_EQ(run({"plan", "tiny.yaml", "--capacity", "1MiB"}).code, 2);
  write("t.csv", "id,lower,upper,size\na,0,5,100\n");
  for (const std::vector<std::string>& flag :
       {std::vector<std::string>{"--memory", "1MiB"}, {"--device", "h200"}, {"--capacity", "0"}}) {
    const Outcome outcome = run({"plan", "--trace", "t.csv", flag[0], flag[1]});
    EXPECT_EQ(outcome.code, 2) << flag[0];
    EXPECT_NE(outcome.err.find(flag[0]), std::string::npos) << outcome.err;
  }
  for (const char* seconds : {"0", "-1", "nan", "1e9", "soon"}) {
    const Outcome outcome = run({"plan", "tiny.yaml", std::string("--seconds=") + seconds});
    EXPECT_EQ(outcome.code, 2) << seconds;
    EXPECT_LE(outcome.err.substr(0, outcome.err.find('\n')).size(), 80u) << outcome.err;
  }
}

TEST_F(Plan, NamesTheProfilesNearestFirst) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"plan", "tiny.yaml"}, {"profile", "memory", "tiny.yaml", "--planned"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--device", "t44"});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("the nearest are\n  t4, "), std::string::npos) << outcome.err;
  }
}

TEST_F(Plan, SolvesABatchSizeOfAuto) {
  const std::vector<std::string> plan = {"plan", "tiny.yaml", "data.pipeline.batch.size=auto", "--json"};
  const auto batch_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = plan;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.last_json()["batch"].get<std::int64_t>();
  };
  const std::int64_t whole = batch_of({}), small = batch_of({"--memory", "6MiB"});
  EXPECT_EQ(whole, 256) << "all samples fit the machine";
  EXPECT_LT(small, whole);
  EXPECT_EQ(small, batch_of({"memory.limits={cpu: 6MiB}"}));
  EXPECT_EQ(batch_of({"--batch-sizes", "24", "--memory", "64MiB"}), 24) << "sizes that are given win";
  EXPECT_EQ(batch_of({"--device", "t4"}), 256) << "the card's memory is what there is";
}

TEST_F(Plan, SaysWhatIsToBeFitted) {
  const auto words = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan", "tiny.yaml", "--device", "t4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments).out;
  };
  const std::string card = words({});
  EXPECT_EQ(card.find("tiny on t4 (estimate), accumulate 1\nto fit a process of 14.6 GiB: all of t4's\n"), 0u) << card;
  for (const auto& [flag, part] : std::map<std::string, std::string>{
           {"--memory=1GiB", "to fit a process of 1.00 GiB\n"},
           {"--memory=20GiB", "to fit a process of 14.6 GiB: all of t4's, not the 20.0 GiB asked for\n"},
           {"memory.budget=1GiB", "to fit a pool of 1.00 GiB\n"},
           {"memory.limits={\"cuda:0\": 1GiB}", "to fit a process of 1.00 GiB\n"}}) {
    const std::string text = words({flag});
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_NE(run({"plan", "tiny.yaml", "--memory", "1GiB"}).out.find("to fit a pool of 1.00 GiB\n"), std::string::npos);
}

TEST_F(Plan, SharesOfADeviceAreNotItsOwn) {
  for (const auto& [device, name, limit, share] : std::vector<std::array<std::string, 4>>{
           {"t4", "\"cuda:0\"", "256MiB", "57MiB"}, {"cpu", "cpu", "24MiB", "20MiB"}}) {
    const auto plan = [&, device = device, name = name, share = share](const std::string& bytes,
                                                                       const std::string& batch, bool split) {
      std::vector<std::string> arguments = {
          "plan", "tiny.yaml", "--device", device, "recompute=none", "--json", "data.pipeline.batch.size=" + batch};
      arguments.push_back("memory.limits={" + name + ": " + bytes + "}");
      if (split) arguments.push_back("memory.logical={" + name + ": [" + share + "]}");
      return run(arguments);
    };
    EXPECT_EQ(plan(limit, "128", false).code, 0) << device;
    const Outcome split = plan(limit, "128", true);
    EXPECT_EQ(split.code, 4) << device << split.out << split.err;
    const auto row = split.last_json();
    EXPECT_FALSE(row["fits"].get<bool>());
    const auto needed = row["needed_bytes"].get<std::uint64_t>();
    EXPECT_EQ(plan(std::to_string(needed), "128", true).code, 0) << device;
    EXPECT_EQ(plan(std::to_string(needed - (1u << 20)), "128", true).code, 4) << device;
    const Outcome solved = plan(limit, "auto", true), whole = plan(limit, "auto", false);
    ASSERT_EQ(solved.code, 0) << device << solved.err;
    EXPECT_LT(solved.last_json()["batch"].get<int>(), whole.last_json()["batch"].get<int>()) << device;
  }
}

TEST_F(Plan, TheCardIsALimit) {
  const Outcome outcome = run({"plan", config("resnet50.yaml"), "--device", "t4", "--batch-sizes", "1024", "--json"});
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  const auto row = outcome.last_json();
  EXPECT_FALSE(row["fits"].get<bool>());
  EXPECT_EQ(row["memory_of"], "card");
  EXPECT_EQ(row["recompute"], "none") << "chosen for limits that are given, as in train";
  EXPECT_GT(row["needed_bytes"].get<std::uint64_t>(), row["memory_bytes"].get<std::uint64_t>());
}

TEST_F(Plan, WhatIsNeededIsEnough) {
  for (const char* device : {"cpu", "t4"}) {
    const auto plan = [&](const std::vector<std::string>& more) {
      std::vector<std::string> arguments = {"plan", "tiny.yaml", "--device", device, "recompute=none"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      return run(arguments);
    };
    const Outcome refused = plan({"--memory", "1MiB", "--json"});
    EXPECT_EQ(refused.code, 4);
    const auto needed = refused.last_json()["needed_bytes"].get<std::uint64_t>();
    EXPECT_EQ(plan({"--memory", std::to_string(needed)}).code, 0) << device;
    const std::uint64_t half_a_page = 1u << 20;
    EXPECT_EQ(plan({"--memory", std::to_string(needed - half_a_page)}).code, 4) << device;
    const Outcome words = plan({"--memory", "1MiB"});
    const std::string bounded = std::string(device) == "cpu" ? "pool" : "limit";
    EXPECT_NE(words.out.find("It does not fit: it needs a " + bounded + " of "), std::string::npos) << words.out;
    const Outcome rows = plan({"--memory", "1MiB", "--batch-sizes", "16,32"});
    EXPECT_NE(rows.out.find("the least, with batch 16, needs a " + bounded + " of "), std::string::npos) << rows.out;
    if (std::string(device) == "cpu") continue;
    std::uint64_t sum = 0;
    const auto json = refused.last_json();
    for (const auto& [name, bytes] : json["overhead"].items()) sum += bytes.get<std::uint64_t>();
    EXPECT_EQ(json["process_bytes"].get<std::uint64_t>() + json["reserve_bytes"].get<std::uint64_t>(), needed);
    EXPECT_EQ(json["overhead_bytes"], sum);
    EXPECT_NE(words.out.find("\nreserve "), std::string::npos) << words.out;
  }
}

TEST_F(Plan, ExplainAddsUpForEveryShippedConfiguration) {
  const std::filesystem::path configs = std::filesystem::path(BANTAM_SOURCE_DIR) / "configs";
  int explained = 0;
  for (const auto& config : std::filesystem::recursive_directory_iterator(configs)) {
    if (config.is_directory()) continue;
    for (const char* device : {"cpu", "h200"}) {
      const Outcome outcome =
          run({"explain", config.path().string(), "--device", device, "--batch-size", "8", "--json"});
      ASSERT_EQ(outcome.code, 0) << config.path() << outcome.err;
      const auto json = outcome.last_json();
      std::int64_t bytes = 0;
      double us = 0;
      for (const auto& node : json["nodes"])
        for (const auto& phase : node["phases"]) {
          bytes += phase["bytes"].get<std::int64_t>();
          us += phase["predicted_us"].get<double>();
        }
      EXPECT_EQ(bytes, json["bytes"]);
      EXPECT_NEAR(us, json["predicted_us"].get<double>(), 1e-6 * us);
      EXPECT_EQ(json["batch"], 8);
      ++explained;
    }
  }
  EXPECT_GE(explained, 20);
}

TEST_F(Plan, ARunWithoutUpdatesHasNoScheduleToShow) {
  const std::string scheduled = "train.optimizer={sgd: {learning_rate: {schedule: cosine, peak: 0.1}}}";
  const std::filesystem::path config = std::filesystem::path(BANTAM_SOURCE_DIR) / "configs" / "quickstart.yaml";
  const auto explained = [&](const char* batch) {
    return run({"explain", config.string(), "--device", "h200", "--batch-size", batch,
                "data.pipeline.batch.drop_last=true", scheduled});
  };
  const Outcome some = explained("64"), none = explained("1000000");
  ASSERT_EQ(some.code, 0) << some.err;
  EXPECT_NE(some.out.find("learning_rate"), std::string::npos) << some.out;
  ASSERT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(none.out.find("learning_rate"), std::string::npos) << none.out;
}

TEST_F(Plan, ExplainPrintsATableAndMeasures) {
  const Outcome outcome = run({"explain", "tiny.yaml", "--measure", "--threads", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* text : {"operation", "measured", "(between updates)", "one update", "100.0", "optimizer"})
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << outcome.out;
  const Outcome profile = run({"explain", "tiny.yaml", "--measure", "--device", "h200"});
  EXPECT_EQ(profile.code, 2);
  EXPECT_NE(profile.err.find("not on a profile"), std::string::npos) << profile.err;
}

}  // namespace
}  // namespace bantam::cli::plan_test
