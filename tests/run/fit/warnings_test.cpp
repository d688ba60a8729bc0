// Warnings of values that are likely to spoil a run.
#include "bantam/run/fit/warnings.h"

#include "bantam/base/atomic_file.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::warnings_test {
namespace {

class WarningsTest : public RunTest {
 protected:
  /// Version 1.0 of the format.
  void write_npy(const std::string& name, const std::string& type, const std::string& shape,
                 const std::string& bytes) const {
    std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    header.resize((header.size() + 10) / 64 * 64 + 64 - 10 - 1, ' ');
    header += '\n';
    const auto size = static_cast<std::uint16_t>(header.size());
    std::string file = "\x93NUMPY";
    file += {'\x01', '\x00', static_cast<char>(size & 0xff), static_cast<char>(size >> 8)};
    write_file_atomically(path(name), file + header + bytes);
  }
};

TEST_F(WarningsTest, WarnsOfProbabilitiesWhereTheLossReadsLogits) {
  const auto warnings = [](const std::string& end, const std::vector<std::string>& more = {}) {
    std::vector<std::string> overrides = more;
    overrides.push_back("model.layers=[global_average_pool, " + end + "]");
    return run_warnings(tiny(overrides));
  };
  EXPECT_EQ(warnings("{dense: {units: 10}}, softmax"),
            std::vector<std::string>{"the model ends with a softmax, and the loss softmax_cross_entropy applies one "
                                     "itself: leave the model's out"});
  EXPECT_TRUE(warnings("{dense: {units: 10, activation: sigmoid}}").empty());
  const std::vector<std::string> soft = {"data.labels=soft", "train.loss=binary_cross_entropy"};
  for (const char* end : {"{dense: {units: 10, activation: sigmoid}}", "{dense: {units: 10}}, sigmoid"})
    EXPECT_EQ(warnings(end, soft),
              std::vector<std::string>{"the model ends with a sigmoid, and the loss binary_cross_entropy applies one "
                                       "itself: leave the model's out"});
  EXPECT_TRUE(warnings("{dense: {units: 10}}, softmax", soft).empty());
}

TEST_F(WarningsTest, WarnsOfTopKOfAllClasses) {  // the network has 10 outputs
  const auto warnings = [&](const std::string& metrics) { return run_warnings(tiny({"train.metrics=" + metrics})); };
  EXPECT_TRUE(warnings("[accuracy, top_k: {k: 9}]").empty());
  for (const char* k : {"10", "12"})
    EXPECT_EQ(warnings(std::string("[top_k: {k: ") + k + "}]"),
              std::vector<std::string>{
                  std::string("train.metrics: top_k of ") + k +
                  " is always 1: the model has 10 outputs, and any label is among all of them. `top_k: {k: 3}` counts "
                  "fewer"});
}

TEST_F(WarningsTest, WarnsOfPixelsThatAreNotScaled) {
  const auto warnings = [](const std::string& normalize) {
    return run_warnings(tiny({"data.pipeline.normalize=" + normalize}));
  };
  const std::vector<std::string> found = warnings("{mean: [0.5, 0.4, 0.45], std: [0.25, 0.2, 0.3]}");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].starts_with("pixels reach the network as numbers up to 1273: ")) << found[0];
  EXPECT_EQ(warnings("{}").size(), 1u) << "0 to 255";
  EXPECT_TRUE(warnings("{scale: 0.0039, mean: [0.5, 0.4, 0.45], std: [0.25, 0.2, 0.3]}").empty());
  EXPECT_TRUE(warnings("{mean: 127.5, std: 127.5}").empty()) << "the same by other means";
}

TEST_F(WarningsTest, WarnsOfRunningStatisticsThatCannotFollow) {  // 12 updates
  const auto warnings = [](const std::string& norm, const std::vector<std::string>& more = {}) {
    std::vector<std::string> overrides = {"model.layers=[{conv2d: {filters: 4, kernel: 3, stride: 4}}, " + norm +
                                          ", global_average_pool, {dense: {units: 10}}]"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return run_warnings(tiny(overrides));
  };
  const std::vector<std::string> found = warnings("{batch_norm: {momentum: 0.99}}");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0],
            "batch norm: 1 of 1 norms have momentum 0.99 (rate 0.01), and the run has only 12 batches: in evaluations "
            "89% of their running statistics would still be the initial ones. momentum: 0.75 or less, or auto, suits "
            "this run; with 0.99 it needs 300 batches");
  EXPECT_EQ(warnings("{batch_norm: {rate: 0.1}}").size(), 1u) << "12 × 0.1 is less than 3";
  EXPECT_TRUE(warnings("{batch_norm: {rate: 0.25}}").empty());
  EXPECT_TRUE(warnings("{batch_norm: {rate: 0.125}}", {"train.accumulate=1", "train.epochs=4"}).empty());
  EXPECT_TRUE(warnings("batch_norm").empty()) << "it warms up";
  const std::vector<std::string> frozen = {"train.groups=[{match: \"batch_norm*\", freeze: true}]"};
  EXPECT_TRUE(warnings("{batch_norm: {momentum: 0.99}}", frozen).empty()) << "they do not move";
  EXPECT_TRUE(warnings("{batch_norm: {momentum: 0.99}}", {"train.initial_weights=w.safetensors"}).empty())
      << "they begin with those of others";
}

TEST_F(WarningsTest, WarnsOfClassesThatComeOneAfterAnother) {
  const auto warnings = [&](bool sorted, const std::string& stage) {
    std::string labels, bytes;
    for (int i = 0; i < 200; ++i) {
      bytes += std::string(8 * 8 * 3, static_cast<char>(i));
      const std::int64_t label = sorted ? i / 50 : i % 4;
      labels.append(reinterpret_cast<const char*>(&label), sizeof label);
    }
    write_npy("x.npy", "|u1", "(200, 8, 8, 3)", bytes);
    write_npy("y.npy", "<i8", "(200,)", labels);
    const std::string text = "device: cpu\ndata:\n  format: npy\n  train: {images: " + path("x.npy").string() +
                             ", labels: " + path("y.npy").string() + "}\n  validation: {split: 0.2}\n  pipeline:\n" +
                             stage +
                             "    - normalize: {scale: 0.0039}\n    - batch: {size: 20}\n"
                             "model: {input: [8, 8, 3], layers: [global_average_pool, {dense: {units: 4}}]}\n";
    return run_warnings(parse_run_config(text, "n.yaml", {}));
  };
  const std::vector<std::string> found = warnings(true, "");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0],
            "the training samples stand class after class, and the pipeline has no shuffle: batches would be of one "
            "class each. Write `- shuffle` into data.pipeline");
  EXPECT_TRUE(warnings(false, "").empty());
  EXPECT_TRUE(warnings(true, "    - shuffle\n").empty());
  EXPECT_EQ(warnings(true, "    - shuffle: {buffer: 10}\n").size(), 1u);
}

TEST_F(WarningsTest, WarnsOfWhatTheRunDoesNotReach) {  // its 12 updates
  const auto warnings = [](const std::vector<std::string>& overrides) { return run_warnings(tiny(overrides)); };
  EXPECT_EQ(warnings({"train.prune={begin: 12, end: 20}"}),
            std::vector<std::string>{"train.prune.begin: the run has only 12 updates, not 12: nothing is pruned"});
  EXPECT_EQ(warnings({"train.prune={begin: 2, end: 20}"}),
            std::vector<std::string>{
                "train.prune.end: the run has only 12 updates, not 20: the final sparsity is not reached"});
  EXPECT_EQ(
      warnings({"train.ema={every: 13}"}),
      std::vector<std::string>{"train.ema.every: the run has only 12 updates, not 13: weights are never averaged"});
  EXPECT_EQ(warnings({"train.groups=[{match: \"conv*\", freeze: true, until: 2epochs}]"}),
            std::vector<std::string>{
                "train.groups, until of \"conv*\": the run has only 12 updates, not 12: they stay frozen to its end"});
  EXPECT_TRUE(warnings({"train.prune={begin: 11, end: 12}", "train.ema={every: 12}",
                        "train.groups=[{match: \"conv*\", freeze: true, until: 11}]"})
                  .empty());
}

TEST_F(WarningsTest, ABatchSizeThatIsOpenLeavesOutWhatDependsOnIt) {
  EXPECT_TRUE(run_warnings(tiny({"train.ema={every: 13}", "data.pipeline.batch.size=auto"})).empty());
}

}  // namespace
}  // namespace bantam::run::warnings_test
