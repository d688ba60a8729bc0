// `summary`, `devices`, `bench` and `--version`: what they print, and that it adds up.
#include "bantam/base/text.h"
#include "bantam/memory/device/device.h"
#include "tests/cli/program.h"

namespace bantam::cli::reports_test {
namespace {

class Reports : public ProgramTest {
 protected:
  Reports() { write_tiny_config(); }
  static std::string config(const std::string& name) { return BANTAM_SOURCE_DIR "/configs/" + name; }
  static std::vector<nlohmann::json> objects(const std::string& text) {
    std::vector<nlohmann::json> rows;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }
  static std::uint64_t sum_of_categories(const nlohmann::json& row) {
    std::uint64_t sum = 0;
    for (const auto& [category, bytes] : row["by_category"].items()) sum += bytes.get<std::uint64_t>();
    return sum;
  }
};

TEST_F(Reports, SummarySolvesABatchSizeOfAuto) {
  const std::vector<std::string> summary = {"summary", "tiny.yaml", "data.pipeline.batch.size=auto", "--json"};
  const Outcome whole = run(summary);
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(whole.last_json()["batch"], 256) << "all samples fit the machine";
  std::vector<std::string> limited = summary;
  limited.push_back("memory.limits={cpu: 6MiB}");
  EXPECT_LT(run(limited).last_json()["batch"].get<std::int64_t>(), 256);
}

TEST_F(Reports, SummaryHasRatesWhereLayerDecayIsSet) {
  const Outcome words = run({"summary", "tiny.yaml", "train.layer_decay=0.5"});
  ASSERT_EQ(words.code, 0) << words.err;
  EXPECT_NE(words.out.find("activations  rate\n"), std::string::npos) << words.out;
  EXPECT_EQ(run({"summary", "tiny.yaml"}).out.find("rate"), std::string::npos);
  const std::string groups =
      "train.groups=[{match: \"batch_norm*\", freeze: true}, {match: \"dense*\", learning_rate_scale: 3}]";
  const std::vector<std::string> grouped = {"summary", "tiny.yaml", "--json", "train.layer_decay=0.5", groups};
  std::map<std::string, double> rates;
  const Outcome outcome = run(grouped);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  for (const auto& layer : json["layers"])
    if (layer.contains("learning_rate_scale")) rates[layer["name"]] = layer["learning_rate_scale"].get<double>();
  EXPECT_EQ(rates, (std::map<std::string, double>{{"conv2d", 0.25},
                                                  {"batch_norm", 0},
                                                  {"middle/separable_conv2d", 0.5},
                                                  {"middle/batch_norm", 0.5},
                                                  {"dense", 3}}));
}

TEST_F(Reports, SummaryCountsParametersAndActivations) {
  const Outcome words = run({"summary", config("cifar10_separable.yaml"), "--device", "cpu"});
  ASSERT_EQ(words.code, 0) << words.err;
  for (const char* part : {"695,493", "(16,30,30,32)", "separable_conv2d_2", "2,400", "batch 16"})
    EXPECT_NE(words.out.find(part), std::string::npos) << part << "\n" << words.out;
  const Outcome outcome = run({"summary", config("cifar10_separable.yaml"), "--device", "cpu", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  EXPECT_EQ(json["parameters"], 695493);
  std::int64_t parameters = 0;
  for (const auto& layer : json["layers"]) parameters += layer["parameters"].get<std::int64_t>();
  EXPECT_EQ(parameters, 695493);
  const Outcome parts = run({"summary", config("architectures/efficientnet_b0.yaml"), "--device", "cpu", "--json"});
  ASSERT_EQ(parts.code, 0) << parts.err;
  const nlohmann::json of_parts = parts.last_json();
  parameters = 0;
  for (const auto& layer : of_parts["layers"]) parameters += layer["parameters"].get<std::int64_t>();
  EXPECT_EQ(parameters, of_parts["parameters"].get<std::int64_t>()) << "squeeze_excite/reduce/weight";
  // After forward, of the first block in one op: its pooled output, and four bits for each of its values (which pixel
  // it came from). Without: the depthwise output, which the pointwise convolution keeps, and a bit for each activated
  // value (the activated values themselves went into the pool).
  const std::uint64_t pooled = 16 * 15 * 15 * 32 * 4;
  EXPECT_EQ(json["layers"][0]["activation_bytes"].get<std::uint64_t>(), pooled + pooled / 8);
  const Outcome unfused = run({"summary", config("cifar10_separable.yaml"), "fusion=off", "--device", "cpu", "--json"});
  ASSERT_EQ(unfused.code, 0) << unfused.err;
  const std::uint64_t depthwise = 16 * 30 * 30 * 3 * 4, output = 16 * 30 * 30 * 32 * 4;
  EXPECT_EQ(unfused.last_json()["layers"][0]["activation_bytes"].get<std::uint64_t>(), depthwise + output / 32);
  EXPECT_EQ(sum_of_categories(json), json["peak_bytes"].get<std::uint64_t>());
}

TEST_F(Reports, SummaryWorksForEveryConfigAndForDevicesThatAreNotHere) {
  for (const char* name : {"cifar10_separable.yaml", "fashion_mnist.yaml", "quickstart.yaml", "resnet18_cifar10.yaml",
                           "mobilenet_v1.yaml", "resnet50.yaml"}) {
    const Outcome outcome = run({"summary", config(name), "--device", "cuda:0", "--json"});
    ASSERT_EQ(outcome.code, 0) << name << outcome.err;
    EXPECT_EQ(outcome.last_json()["precision"], "mixed_float16") << name << ": auto, on a GPU";
    EXPECT_GT(outcome.last_json()["activation_bytes"].get<std::uint64_t>(), 0u);
  }
}

TEST_F(Reports, ActivationsShrinkWithRecompute) {
  const auto bytes = [&](const std::string& recompute) {
    return run({"summary", "tiny.yaml", "--json", "recompute=" + recompute})
        .last_json()["activation_bytes"]
        .get<std::uint64_t>();
  };
  EXPECT_LT(bytes("[middle]"), bytes("none"));
}

TEST_F(Reports, LinesOfSummariesFitIn80Columns) {
  for (const char* name : {"cifar10_separable.yaml", "resnet50.yaml", "mobilenet_v1.yaml"}) {
    std::istringstream lines(run({"summary", config(name), "--batch", "64"}).out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_F(Reports, Devices) {
  const Outcome outcome = run({"devices", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  EXPECT_EQ(json["devices"][0]["device"], "cpu");
  EXPECT_GT(json["devices"][0]["total_bytes"].get<std::uint64_t>(), 1u << 20);
  EXPECT_EQ(json["devices"].size(), 1u + static_cast<std::size_t>(cuda_device_count()));
  const int gpus = cuda_device_count();
  ASSERT_EQ(json["links"].size(), static_cast<std::size_t>(gpus * (gpus - 1) / 2)) << "one a pair";
  for (const nlohmann::json& link : json["links"]) {
    EXPECT_LT(link["from"], link["to"]);
    EXPECT_TRUE(link["peer_access"].is_boolean());
    EXPECT_GE(link["nvlinks"], 0);
  }
  EXPECT_TRUE(json["libraries"].contains("oneDNN"));
  // Without a GPU there is a reason, in words too.
  EXPECT_EQ(json["cuda_unavailable_reason"].get<std::string>().empty(), cuda_device_count() > 0);
  const Outcome words = run({"devices"});
  EXPECT_EQ(words.code, 0);
  EXPECT_EQ(words.out.find("no GPU") != std::string::npos, cuda_device_count() == 0) << words.out;
}

TEST_F(Reports, Version) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out.rfind("bantam ", 0), 0u) << outcome.out;
}

TEST_F(Reports, HelpOfEverySubcommand) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {},          {"train"},         {"summary"},           {"devices"},
           {"bench"},   {"bench", "step"}, {"bench", "memory"},   {"bench", "allocator"},
           {"plan"},    {"profile"},       {"profile", "memory"}, {"runs"},
           {"inspect"}, {"evaluate"},      {"predict"},           {"sweep"},
           {"export"},  {"import"},        {"bench", "predict"},  {"data"},
           {"find-lr"}, {"schema"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back("--help");
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("Usage: bantam"), std::string::npos) << outcome.out;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 80u) << line;
  }
}

TEST_F(Reports, BenchStepPrintsARowACase) {
  const Outcome outcome = run({"bench", "step", "tiny.yaml", "--batch-sizes", "4,8", "--precision",
                               "float32,mixed_float16", "--seconds", "0.02", "--threads", "1", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = objects(outcome.out);
  ASSERT_EQ(rows.size(), 4u);
  for (const auto& row : rows) {
    EXPECT_EQ(row["model"], "tiny");
    EXPECT_EQ(row["device"], "cpu");
    EXPECT_EQ(row["recompute"], "none");
    const double ms = row["ms_per_step"].get<double>();
    EXPECT_GT(ms, 0.0);
    // Both are rounded: the rate to whole images, the time to 0.1 µs.
    EXPECT_NEAR(row["images_per_s"].get<double>(), row["batch"].get<double>() / ms * 1e3,
                0.5 + 1e-3 * row["images_per_s"].get<double>());
    EXPECT_EQ(sum_of_categories(row), row["peak_bytes"].get<std::uint64_t>());
    const double bytes = row["bytes_ms"].get<double>(), flops = row["flops_ms"].get<double>();
    EXPECT_GT(std::min(bytes, flops), 0.0);
    EXPECT_EQ(row["chain_ms"].get<double>(), 0.0);  // kernels are counted where they are captured
    EXPECT_EQ(row["floor_ms"].get<double>(), std::max(bytes, flops));
    // The bound is chosen before the times are rounded: of two that print alike either may be the longer.
    if (bytes != flops) {
      EXPECT_EQ(row["floor_bound"], bytes > flops ? "bytes" : "flops");
    }
    EXPECT_GT(row["ratio_to_floor"].get<double>(), 1.0);
  }
  EXPECT_EQ(rows[1]["batch"], 8);
  EXPECT_EQ(rows[2]["precision"], "mixed_float16");
  EXPECT_NE(run({"bench", "step", "tiny.yaml", "--seconds", "0.02", "--threads", "1"}).out.find("ms/step"),
            std::string::npos);
}

TEST_F(Reports, BenchStepComparesModes) {
  const Outcome outcome =
      run({"bench", "step", "tiny.yaml", "--mode", "eager,planned", "--seconds", "0.02", "--threads", "1", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = objects(outcome.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["mode"], "eager");
  EXPECT_EQ(rows[1]["mode"], "planned");
  EXPECT_EQ(rows[0]["peak_bytes"], rows[1]["peak_bytes"]);
  EXPECT_LT(rows[1]["pool_bytes"].get<std::uint64_t>(), rows[0]["pool_bytes"].get<std::uint64_t>());
  std::istringstream lines(run({"bench", "step", "tiny.yaml", "--seconds", "0.02", "--threads", "1"}).out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_EQ(run({"bench", "step", "tiny.yaml", "--mode", "lazy"}).code, 2);
}

TEST_F(Reports, BenchMemoryAddsUpToTheByteAndGoesOnWhereARowDoesNotFit) {
  const std::vector<std::string> arguments = {"bench",  "memory",      "tiny.yaml", "--batch-sizes",
                                              "8,4096", "--recompute", "none,all",  "--seconds",
                                              "0.02",   "--threads",   "1",         "memory.limits={cpu: 8MiB}"};
  std::vector<std::string> as_json = arguments;
  as_json.push_back("--json");
  const Outcome outcome = run(as_json);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = objects(outcome.out);
  ASSERT_EQ(rows.size(), 4u);
  for (const auto& row : rows) {
    if (row["batch"] == 8) {
      EXPECT_EQ(sum_of_categories(row), row["peak_bytes"].get<std::uint64_t>());
      EXPECT_LE(row["peak_bytes"].get<std::uint64_t>(), row["pool_bytes"].get<std::uint64_t>());
      EXPECT_LE(row["pool_bytes"].get<std::uint64_t>(), 8u << 20);
    } else {
      EXPECT_EQ(row["error"], "does not fit");
      EXPECT_GT(row["needed_bytes"].get<std::uint64_t>(), 8u << 20);
    }
  }
  const Outcome words = run(arguments);
  EXPECT_NE(words.out.find("does not fit (needs "), std::string::npos) << words.out;
  std::istringstream lines(words.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST_F(Reports, TablesNameThePolicyWhole) {
  const std::vector<std::string> rows = {"--batch-sizes", "16", "--recompute", "cheap", "--seconds", "0.01"};
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"bench", "memory", "tiny.yaml", "--threads", "1"}, {"plan", "tiny.yaml", "--memory", "64GiB"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), rows.begin(), rows.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(" cheap "), std::string::npos) << outcome.out;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_F(Reports, TheMetaDeviceForeseesThePeakToTheByte) {
  const std::uint64_t planned = run({"summary", "tiny.yaml", "--json"}).last_json()["peak_bytes"].get<std::uint64_t>();
  const Outcome measured = run({"bench", "memory", "tiny.yaml", "--seconds", "0.01", "--threads", "1", "--json"});
  EXPECT_EQ(measured.last_json()["peak_bytes"].get<std::uint64_t>(), planned);
}

}  // namespace
}  // namespace bantam::cli::reports_test
