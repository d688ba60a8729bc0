// What a run left, found by its folder, a checkpoint or a file; and what is said where it is not there.
#include "bantam/run/trained/trained_model.h"

#include <cstring>
#include <limits>

#include "bantam/base/error.h"
#include "bantam/run/train/run_directory.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::trained_model_test {
namespace {

namespace fs = std::filesystem;

class TrainedModelTest : public RunTest {
 protected:
  void run(const std::string& name, const std::vector<std::string>& overrides = {}) const {
    (void)train(tiny(overrides), {.threads = 1, .folder = path(name)});
  }
  /// Stopped and resumed, so that it has two checkpoints, of `first` updates and of all 12.
  void run_in_two(const std::string& name, int first, std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.end(), {"checkpoint.every=off", "train.max_updates=" + std::to_string(first)});
    run(name, overrides);
    RunDirectory folder = RunDirectory::open(path(name));
    const std::vector<std::string> rest = {"train.max_updates=0"};
    (void)train(read_run_config(folder.config(), rest), {.threads = 1}, {}, {.resume = &folder});
  }
  /// The error's message; empty: there was none.
  template <class Error>
  std::string fails(const fs::path& what, const TrainedModelOptions& options = {}) const {
    try {
      (void)open_trained_model(what, options);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  /// The file as a program that knows no runs writes it.
  static SafetensorsFile read_from_elsewhere(const fs::path& file) {
    SafetensorsFile read = read_safetensors(file);
    read.metadata.erase("bantam.run");
    return read;
  }
  static std::string bytes_of(const SafetensorsFile& file) {
    std::string all;
    for (const auto& [name, tensor] : file.tensors)
      all.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    return all;
  }
  std::string bytes_of(const fs::path& file) const { return bytes_of(read_safetensors(path(file))); }
  static constexpr const char* kAverages = "train.ema={decay: 0.5, evaluate: false}";
};

::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (!part.empty() && text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << text << "' lacks '" << part << "'";
}

TEST_F(TrainedModelTest, EveryPlaceOfARunIsFound) {
  run_in_two("r", 6, {"checkpoint.best={metric: loss}"});
  const fs::path checkpoint = path("r/checkpoints/update-00000006");
  const TrainedModel last = open_trained_model(path("r"));
  EXPECT_EQ(last.weights_file, path("r/weights.safetensors"));
  EXPECT_EQ(last.run, path("r"));
  EXPECT_EQ(last.config.name, "tiny");
  EXPECT_TRUE(last.config.data.has_value());
  EXPECT_EQ(last.class_names, train_facts(*last.config.data).class_names);
  EXPECT_EQ(last.class_names.size(), 10u);
  EXPECT_FALSE(last.updates.has_value());
  EXPECT_EQ(bytes_of(last.weights), bytes_of("r/weights.safetensors"));
  EXPECT_EQ(open_trained_model(path("r/")).weights_file, last.weights_file);
  EXPECT_EQ(open_trained_model(path("r"), {.checkpoint = "last"}).updates, 12);
  EXPECT_EQ(open_trained_model(path("r"), {.checkpoint = "best"}).weights_file, path("r/weights-best.safetensors"));
  const TrainedModel sixth = open_trained_model(path("r"), {.checkpoint = "6"});
  EXPECT_EQ(sixth.updates, 6);
  EXPECT_EQ(bytes_of(sixth.weights), bytes_of(checkpoint / "weights.safetensors"));
  EXPECT_NE(bytes_of(sixth.weights), bytes_of(last.weights));
  EXPECT_EQ(open_trained_model(checkpoint).updates, 6);
  EXPECT_EQ(open_trained_model(checkpoint).run, path("r"));
  const TrainedModel file = open_trained_model(checkpoint / "weights.safetensors");
  EXPECT_EQ(bytes_of(file.weights), bytes_of(sixth.weights));
  EXPECT_EQ(file.config.name, "tiny");
}

TEST_F(TrainedModelTest, AveragesAreThoseOfTheRunsEndOrOfACheckpoint) {
  run_in_two("r", 8, {kAverages, "checkpoint.best={metric: loss}"});
  const TrainedModel end = open_trained_model(path("r"), {.ema = true});
  EXPECT_TRUE(end.averaged);
  EXPECT_EQ(bytes_of(end.weights), bytes_of("r/weights-ema.safetensors"));
  EXPECT_NE(bytes_of(end.weights), bytes_of("r/weights.safetensors"));
  const TrainedModel last = open_trained_model(path("r"), {.checkpoint = "last", .ema = true});
  EXPECT_EQ(bytes_of(last.weights), bytes_of(end.weights));
  const TrainedModel eighth = open_trained_model(path("r/checkpoints/update-00000008"), {.ema = true});
  EXPECT_EQ(eighth.updates, 8);
  EXPECT_NE(bytes_of(eighth.weights), bytes_of(end.weights));
  EXPECT_EQ(eighth.weights.tensors.size(), end.weights.tensors.size());
  EXPECT_TRUE(has(fails<DataError>(path("r"), {.checkpoint = "best", .ema = true}), "are not averages"));
  EXPECT_TRUE(has(fails<ConfigError>(path("r/weights.safetensors"), {.ema = true}), "one set of weights"));
  EXPECT_TRUE(open_trained_model(path("r/weights-ema.safetensors")).averaged);
}

TEST_F(TrainedModelTest, TheBestOfAveragesIsAnAverage) {
  run("r", {"train.ema={decay: 0.5}", "checkpoint={best: {metric: loss}}"});
  EXPECT_TRUE(open_trained_model(path("r"), {.checkpoint = "best"}).averaged);
  EXPECT_TRUE(open_trained_model(path("r"), {.checkpoint = "best", .ema = true}).averaged);
}

TEST_F(TrainedModelTest, ARunUnderWayHasItsNewestCheckpoint) {
  run_in_two("r", 8);
  RunRecord record = load_record(path("r/run.json"));
  record.state = RunState::running;  // it was resumed: its final weights are those of an end before
  write_record(path("r/run.json"), record);
  fs::remove_all(path("r/checkpoints/update-00000012"));
  EXPECT_EQ(open_trained_model(path("r")).updates, 8);
  record.state = RunState::finished;
  write_record(path("r/run.json"), record);
  EXPECT_FALSE(open_trained_model(path("r")).updates.has_value());
  fs::remove(path("r/weights.safetensors"));
  EXPECT_EQ(open_trained_model(path("r")).updates, 8);
  fs::remove_all(path("r/checkpoints"));
  EXPECT_TRUE(has(fails<DataError>(path("r")), "is a run without a checkpoint and without weights so far"));
}

TEST_F(TrainedModelTest, AFileOutsideOfARunNeedsAConfiguration) {
  run("r");
  fs::copy(path("r/weights.safetensors"), path("alone.safetensors"));
  EXPECT_TRUE(has(fails<ConfigError>(path("alone.safetensors")), "name the configuration"));
  fs::copy(path("r/config.yaml"), path("net.yaml"));
  const TrainedModel model = open_trained_model(path("alone.safetensors"), {.config = path("net.yaml")});
  EXPECT_EQ(model.config.name, "net");
  EXPECT_TRUE(model.run.empty());
  EXPECT_EQ(model.class_names.size(), 10u) << "of the file's metadata";
  const TrainedModel changed =
      open_trained_model(path("r"), {.config = path("net.yaml"), .overrides = {"data.pipeline.batch.size=5"}});
  EXPECT_EQ(changed.config.data->pipeline.batch_size, 5);
}

TEST_F(TrainedModelTest, DataThatAreNotWantedNeedNotBeThere) {
  run("r");
  const std::string text = read_file(path("r/config.yaml"));
  const std::size_t at = text.find("generated");
  ASSERT_NE(at, std::string::npos);
  write_file_atomically(path("r/config.yaml"), std::string(text).replace(at, 9, "image_folder\n  path: gone"));
  EXPECT_TRUE(has(fails<ConfigError>(path("r")), "gone"));
  const TrainedModel model = open_trained_model(path("r"), {.with_data = false});
  EXPECT_FALSE(model.config.data.has_value());
  EXPECT_EQ(model.class_names.size(), 10u);
}

TEST_F(TrainedModelTest, ARunOfAnotherProgramWithLayersOfItsOwnNamesThatProgram) {
  (void)train(tiny(), {.threads = 1, .folder = path("r")});
  RunRecord record = load_record(path("r/run.json"));
  EXPECT_FALSE(record.executable.empty());
  const auto message = [&] {
    try {
      (void)open_trained_model(path("r"), {.overrides = {"model.layers.1=my_layer_scale"}});
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message().find("another program"), std::string::npos) << "this one made it: " << message();
  record.executable = "/opt/mine/train_mine";
  write_record(path("r/run.json"), record);
  EXPECT_NE(message().find("my_layer_scale"), std::string::npos) << message();
  EXPECT_NE(message().find("/opt/mine/train_mine"), std::string::npos) << message();
}

TEST_F(TrainedModelTest, WhatIsMissingIsNamedBesideWhatThereIs) {
  run_in_two("r", 8);
  EXPECT_TRUE(has(fails<DataError>(path("gone")), "there is no such run and no such file"));
  EXPECT_TRUE(has(fails<DataError>(path("")), "holds no run"));
  EXPECT_TRUE(has(fails<DataError>(path("r"), {.checkpoint = "4"}),
                  "no checkpoint of 4 updates: it has checkpoints 12 and 8, and weights.safetensors"));
  EXPECT_TRUE(has(fails<DataError>(path("r"), {.checkpoint = "best"}), "no weights-best.safetensors"));
  EXPECT_TRUE(has(fails<ConfigError>(path("r"), {.checkpoint = "newest"}), "expected last, best or a number"));
  EXPECT_TRUE(has(fails<DataError>(path("r"), {.ema = true}), "has no train.ema"));
  EXPECT_TRUE(has(fails<DataError>(path("r/checkpoints/update-00000012/state.safetensors")), "whole state"));
  EXPECT_TRUE(has(fails<ConfigError>(path("r/checkpoints/update-00000012"), {.checkpoint = "8"}), "is one already"));
  write_file_atomically(path("old.pt"), "PK\3\4 …");
  EXPECT_TRUE(has(fails<DataError>(path("old.pt"), {.config = path("r/config.yaml")}), "a file of PyTorch"));
}

/// The lengths of its header begin as a pickle and as a zip archive do (ModelWeightsTest).
TEST_F(TrainedModelTest, ARunsOwnFileIsNoneOfPyTorchsWhateverTheLengthOfItsHeader) {
  run("r");
  const SafetensorsFile file = read_from_elsewhere(path("r/weights.safetensors"));
  for (const std::uint64_t header : {65536 + 640, 19280}) {
    write_with_header_of(path("r/weights.safetensors"), file, header);
    EXPECT_EQ(bytes_of(open_trained_model(path("r")).weights), bytes_of(file)) << header;
  }
}

TEST_F(TrainedModelTest, WeightsOfAnotherNetworkAreRefusedByName) {
  run("r");
  const std::vector<std::string> wider = {"model.layers.0.conv2d.filters=5"};
  const std::string other = fails<DataError>(path("r"), {.overrides = wider});
  EXPECT_TRUE(has(other, "tensor '"));
  EXPECT_EQ(other.find("skip"), std::string::npos) << "nothing can be left out here: " << other;
  SafetensorsFile file = read_from_elsewhere(path("r/weights.safetensors"));
  const std::string name = file.tensors.begin()->first;
  HostTensor& tensor = file.tensors.begin()->second;
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(tensor.bytes.data(), &nothing, sizeof nothing);
  write_safetensors(path("r/weights.safetensors"), file);
  EXPECT_TRUE(has(fails<DataError>(path("r")), "not finite"));
  file.tensors.erase(file.tensors.begin());
  write_safetensors(path("r/weights.safetensors"), file);
  EXPECT_TRUE(has(fails<DataError>(path("r")), "missing: '" + name));
}

TEST_F(TrainedModelTest, HalfPrecisionFilesAreRead) {
  run("r");
  SafetensorsFile file = read_from_elsewhere(path("r/weights.safetensors"));
  HostTensor& tensor = file.tensors.begin()->second;
  std::vector<std::byte> half(tensor.bytes.size() / 2);
  for (std::size_t i = 0; i < half.size() / 2; ++i)
    std::memcpy(half.data() + 2 * i, tensor.bytes.data() + 4 * i + 2, 2);
  tensor = {DType::bfloat16, tensor.shape, half};
  write_safetensors(path("r/weights.safetensors"), file);
  const TrainedModel model = open_trained_model(path("r"));
  const HostTensor& read = model.weights.tensors.begin()->second;
  EXPECT_EQ(read.dtype, DType::float32);
  EXPECT_EQ(read.bytes.size(), 2 * half.size());
  EXPECT_EQ(std::memcmp(read.bytes.data() + 2, half.data(), 2), 0);
}

}  // namespace
}  // namespace bantam::run::trained_model_test
