// `model.weights`: runs that begin with a file, and what they remember of it.
#include "bantam/models/yaml/model_weights.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/sha256.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/run/train/fingerprint.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/train/train.h"
#include "bantam/run/weights/initial_weights.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::model_weights_test {
namespace {

struct Told : RunObserver {
  void on_message(std::string_view text) override { messages.emplace_back(text); }
  void on_warning(std::string_view text) override { warnings.emplace_back(text); }
  std::vector<std::string> messages, warnings;
};

class ModelWeightsTest : public RunTest {
 protected:
  Outcome run(const std::string& name, const std::vector<std::string>& overrides) {
    return train(tiny(overrides), {.threads = 1, .folder = path(name)}, {}, {.observer = &told_});
  }
  Outcome resume(const std::string& name, const std::vector<std::string>& overrides = {}) {
    RunDirectory folder = RunDirectory::open(path(name));
    return train(read_run_config(folder.config(), overrides), {.threads = 1}, {}, {.resume = &folder});
  }
  std::string first() {
    std::string file = path("first/weights.safetensors").string();
    if (!std::filesystem::exists(file)) (void)run("first", {});
    return file;
  }
  template <class Error>
  std::string error_of(const std::vector<std::string>& overrides) {
    try {
      (void)run("failed", overrides);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  Told told_;
};

/// No update moves anything: the run ends as it began.
const std::vector<std::string> kStill = {"train.optimizer.sgd.learning_rate=0", "train.epochs=1"};

std::vector<std::string> still(const std::string& more) {
  std::vector<std::string> all = kStill;
  all.push_back(more);
  return all;
}

TEST_F(ModelWeightsTest, ARunBeginsWithThem) {
  const std::string file = first();
  (void)run("second", still("model.weights=" + file));
  const SafetensorsFile was = read_safetensors(file), is = read_safetensors(path("second/weights.safetensors"));
  for (const char* name : {"conv2d/weight", "dense/weight", "batch_norm/scale"})
    EXPECT_EQ(was.tensors.at(name).bytes, is.tensors.at(name).bytes) << name;
  ASSERT_EQ(told_.messages.size(), 1u);
  EXPECT_EQ(told_.messages[0], "weights: 8 of 8 tensors from " + file);
  EXPECT_TRUE(told_.warnings.empty());
}

TEST_F(ModelWeightsTest, TheDigestIsWrittenAndCompared) {
  const std::string file = first(), digest = sha256_of(read_file(file));
  (void)run("second", still("model.weights=" + file));
  const RunRecord record = load_record(path("second/run.json"));
  EXPECT_EQ(record.weights, file);
  EXPECT_EQ(record.weights_sha256, digest);
  const RunConfig resolved = read_run_config(path("second/config.yaml"), {});
  EXPECT_EQ(resolved.model.weights->sha256, digest);
  EXPECT_EQ(fingerprint_of(resolved).at("model.weights.sha256"), digest);
  EXPECT_FALSE(fingerprint_of(resolved).contains("model.weights.file")) << "it may have moved";
  const std::string other(64, '0');
  EXPECT_EQ(error_of<DataError>(still("model.weights={file: " + file + ", sha256: '" + other + "'}")),
            file + ": is another file than model.weights.sha256 says: " + digest + ", expected " + other);
}

TEST_F(ModelWeightsTest, AResumedRunDoesNotReadThem) {
  const std::string file = first();
  (void)run("second", {"model.weights=" + file});
  std::filesystem::remove(file);
  EXPECT_TRUE(resume("second").finished_before);
  EXPECT_EQ(resume("second", {"train.epochs=3"}).result.epoch, 3);
  EXPECT_EQ(load_record(path("second/run.json")).weights, file);
}

/// A path that depends on the current folder: the run's own configuration has it whole, also beside a SHA-256.
TEST_F(ModelWeightsTest, ARunIsResumedFromAnotherFolder) {
  const std::string file = first();
  const std::string digest = sha256_of(read_file(file));
  const std::filesystem::path relative = std::filesystem::relative(file);
  for (const std::string& value : std::vector<std::string>{
           relative.string(), fmt::format("{{file: '{}', sha256: '{}'}}", relative.string(), digest)}) {
    const std::string name = value == relative ? "short" : "long";
    (void)run(name, still("model.weights=" + value));
    EXPECT_EQ(told_.messages.back(), "weights: 8 of 8 tensors from " + relative.string()) << "as it was typed";
    EXPECT_EQ(load_record(path(name) / "run.json").weights, relative.string());
    const RunConfig resolved = read_run_config(path(name) / "config.yaml", {});
    EXPECT_EQ(resolved.model.weights->file, std::filesystem::canonical(file).string());
    EXPECT_EQ(resolved.model.weights->sha256, digest);
  }
  // Before its first checkpoint a run begins anew, and reads the file.
  for (const char* gone : {"checkpoints", "weights.safetensors", "metrics.jsonl"})
    std::filesystem::remove_all(path("short") / gone);
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(path("long"));
  EXPECT_EQ(resume("short").result.epoch, 1);
  std::filesystem::current_path(here);
}

TEST_F(ModelWeightsTest, TheFileHasToBeThere) {
  EXPECT_NO_THROW(require_weights(tiny()));
  EXPECT_NO_THROW(require_weights(tiny({"model.weights=" + first()})));
  const auto error_of_weights = [](const std::string& file) -> std::string {
    try {
      require_weights(tiny({"model.weights=" + file}));
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string gone = path("gone.safetensors").string(), folder = path("first").string();
  EXPECT_EQ(error_of_weights(gone), "model.weights: cannot read " + gone + ": No such file or directory");
  EXPECT_EQ(error_of_weights(folder), "model.weights: cannot read " + folder + ": it is a folder");
}

TEST_F(ModelWeightsTest, AHeadOfOtherClassesIsSkipped) {
  const std::string file = first();
  const std::string layers =
      "model.layers=[{conv2d: {filters: 4, kernel: 3, stride: 4}}, {batch_norm: {activation: relu}}, "
      "global_average_pool, {dense: {units: 12}}, {dense: {units: 10}}]";
  std::vector<std::string> keys = still("model.weights={file: " + file + ", skip: [\"dense*\"]}");
  keys.push_back(layers);
  (void)run("second", keys);
  EXPECT_EQ(told_.messages.back(),
            "weights: 6 of 10 tensors from " + file +
                "; 4 begin as the seed says: dense/bias, dense/weight, dense_2/bias, dense_2/weight");
  keys[2] = "model.weights=" + file;
  EXPECT_NE(error_of<DataError>(keys).find("the model's 'dense/bias' is float32 (12)"), std::string::npos);
  keys[2] = "model.weights={file: " + file + ", skip: [\"dense/*\"], strict: false}";
  (void)run("third", keys);
  EXPECT_EQ(told_.warnings.back(),
            "weights: 6 of 10 tensors from " + file +
                "; 4 begin as the seed says: dense/bias, dense/weight, dense_2/bias, dense_2/weight");
}

TEST_F(ModelWeightsTest, WhatIsWrongIsNamed) {
  const std::string gone = path("gone.safetensors").string();
  EXPECT_TRUE(error_of<DataError>({"model.weights=" + gone}).starts_with("model.weights: cannot read " + gone));
  write_file_atomically(path("net.pt"), std::string("PK\3\4and so on"));
  EXPECT_NE(error_of<DataError>({"model.weights=" + path("net.pt").string()}).find("bantam import"), std::string::npos);
  EXPECT_NE(error_of<ConfigError>({"model.weights=a", "train.initial_weights=b"})
                .find("model.weights names the weights to begin with already"),
            std::string::npos);
  EXPECT_NE(error_of<ConfigError>({"model.weights={file: a, rename: [{from: \"x.*\", to: \"*/*\"}]}"})
                .find("'*/*' has more * and ? than 'x.*'"),
            std::string::npos);
  EXPECT_NE(error_of<ConfigError>({"model.weights={file: a, sha256: \"12\"}"}).find("64 lower-case hexadecimal digits"),
            std::string::npos);
  EXPECT_NE(error_of<ConfigError>({"model.weights={file: a, ski: [b]}"}).find("did you mean 'skip'?"),
            std::string::npos);
}

/// The length of a safetensors file's header comes first: of 65536 + 640 bytes it begins as a pickle of PyTorch does
/// (80 02), of 19280 as a zip archive (PK). The header itself begins with `{`.
TEST_F(ModelWeightsTest, ItsOwnFileIsNoneOfPyTorchsWhateverTheLengthOfItsHeader) {
  const SafetensorsFile file = read_safetensors(first());
  for (const std::uint64_t header : {65536 + 640, 19280}) {
    const std::string name = path("w.safetensors").string();
    write_with_header_of(name, file, header);
    (void)run("second", still("model.weights=" + name));
    EXPECT_EQ(told_.messages.back(), "weights: 8 of 8 tensors from " + name) << header;
    std::filesystem::remove_all(path("second"));
  }
}

/// The map that a run writes reads as what it was made from, quotes included.
TEST_F(ModelWeightsTest, TheYamlReadsBack) {
  models::ModelWeights weights{.file = "it's.safetensors", .sha256 = std::string(64, 'a')};
  weights.options = {.rename = {{"a.*", "b/*"}}, .skip = {"head/*", "x'y"}, .strict = false};
  const auto read = tiny({"model.weights=" + models::to_yaml(weights)}).model.weights;
  ASSERT_TRUE(read);
  EXPECT_EQ(read->file, weights.file);
  EXPECT_EQ(read->sha256, weights.sha256);
  EXPECT_EQ(read->options.skip, weights.options.skip);
  EXPECT_EQ(read->options.rename.at(0).to, "b/*");
  EXPECT_FALSE(read->options.strict);
}

}  // namespace
}  // namespace bantam::run::model_weights_test
