// Runs with averages and pruning: their files, also of a run that was stopped or killed, and what is told of them.
#include <algorithm>
#include <filesystem>

#include <zlib.h>

#include "bantam/engine/train/safetensors.h"
#include "bantam/run/inspect/inspection.h"
#include "bantam/run/train/compressed_size.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::averages_test {
namespace {

namespace fs = std::filesystem;

class AveragesTest : public RunTest {
 protected:
  static std::vector<std::string> both() {
    return {"train.ema={decay: 0.7}", "train.prune={initial: 0.2, final: 0.75, end: 9, frequency: 3}"};
  }
  Outcome run(const std::string& name, const std::vector<std::string>& overrides) {
    return train(tiny(overrides), {.threads = 1, .folder = path(name)});
  }
  Outcome resume(const std::string& name) {
    RunDirectory folder = RunDirectory::open(path(name));
    return train(read_run_config(folder.config(), {}), {.threads = 1}, {}, {.resume = &folder});
  }
  std::string file(const std::string& name) const { return read_file(path(name)); }
};

TEST_F(AveragesTest, FrozenParametersHaveAnAverageWithoutMoments) {
  std::vector<std::string> keys = both();
  keys.emplace_back("train.groups=[{match: \"*conv*\", freeze: true}]");
  const Outcome outcome = run("r", keys);
  EXPECT_EQ(outcome.memory.peak_bytes, outcome.planned_peak_bytes);
  EXPECT_EQ(file("r/weights.safetensors").size(), file("r/weights-ema.safetensors").size());
}

TEST_F(AveragesTest, BeginAsTheInitialWeightsAre) {
  (void)run("first", {});
  const std::string first = "train.initial_weights=" + path("first/weights.safetensors").string();
  (void)run("r", {"train.ema={decay: 0.7, every: 1000}", first, "seed=9"});
  EXPECT_EQ(tensors_of(path("r/weights-ema.safetensors")), tensors_of(path("first/weights.safetensors")))
      << "nothing was averaged yet";
}

TEST_F(AveragesTest, AStoppedRunGoesOnToTheSameFiles) {
  const Outcome whole = run("whole", both());
  EXPECT_EQ(whole.memory.peak_bytes, whole.planned_peak_bytes) << "averages and masks are planned";
  for (const int after : {2, 7}) {
    const std::string name = "r" + std::to_string(after);
    int asked = 0;
    const Outcome stopped =
        train(tiny(both()), {.threads = 1, .folder = path(name), .stop = [&] { return ++asked > after; }});
    ASSERT_TRUE(stopped.result.stopped);
    EXPECT_FALSE(resume(name).result.stopped);
    for (const char* each : {"weights.safetensors", "weights-ema.safetensors"})
      EXPECT_EQ(file(name + "/" + each), file(std::string("whole/") + each)) << each;
  }
  EXPECT_NE(file("whole/weights.safetensors"), file("whole/weights-ema.safetensors"));
}

TEST_F(AveragesTest, ARunThatWasKilledAtItsEndGetsItsAverages) {
  (void)run("r", both());
  const std::string averages = file("r/weights-ema.safetensors"), weights = file("r/weights.safetensors");
  RunRecord record = load_record(path("r/run.json"));
  record.state = RunState::running;
  write_record(path("r/run.json"), record);
  fs::remove(path("r/weights.safetensors"));
  fs::remove(path("r/weights-ema.safetensors"));
  EXPECT_TRUE(resume("r").finished_before);
  EXPECT_EQ(file("r/weights-ema.safetensors"), averages);
  EXPECT_EQ(file("r/weights.safetensors"), weights);
}

/// The best evaluation is of the averages, unless it is told not to be.
TEST_F(AveragesTest, TheBestWeightsAreWhatWasEvaluated) {
  const std::string best = "checkpoint.best={metric: loss, mode: max}", one = "train.epochs=1";
  (void)run("averages", {"train.ema={decay: 0.7}", best, one});
  EXPECT_EQ(tensors_of(path("averages/weights-best.safetensors")),
            tensors_of(path("averages/weights-ema.safetensors")));
  (void)run("weights", {"train.ema={decay: 0.7, evaluate: false}", best, one});
  EXPECT_EQ(tensors_of(path("weights/weights-best.safetensors")), tensors_of(path("weights/weights.safetensors")));
  EXPECT_EQ(file("weights/weights-ema.safetensors"), file("averages/weights-ema.safetensors"));
}

TEST_F(AveragesTest, AveragesAreTheModelsTensors) {
  (void)run("r", both());
  const auto weights = read_safetensors(path("r/weights.safetensors")),
             averages = read_safetensors(path("r/weights-ema.safetensors"));
  ASSERT_EQ(averages.tensors.size(), weights.tensors.size());
  for (const auto& [name, tensor] : weights.tensors) {
    ASSERT_TRUE(averages.tensors.contains(name)) << name;
    EXPECT_EQ(averages.tensors.at(name).shape, tensor.shape) << name;
  }
}

TEST_F(AveragesTest, PrunedWeightsAreExactZerosThatAnInspectionCounts) {
  const Outcome outcome = run("r", both());
  ASSERT_TRUE(outcome.weights);
  EXPECT_EQ(outcome.weights->bytes, fs::file_size(path("r/weights.safetensors")));
  EXPECT_FALSE(run("dense", {}).weights);
  for (const char* name : {"r/weights.safetensors", "r/weights-ema.safetensors", "r"}) {
    const std::vector<LayerSparsity> layers = inspect(path(name)).files.at(0).sparsity();
    ASSERT_EQ(layers.size(), 2u) << name;
    for (const LayerSparsity& layer : layers)
      EXPECT_EQ(layer.zeros, layer.weights * 3 / 4) << name << ", layer " << layer.layer;
  }
  const std::vector<LayerSparsity> dense = inspect(path("dense")).files.at(0).sparsity();
  EXPECT_TRUE(std::ranges::all_of(dense, [](const LayerSparsity& layer) { return layer.zeros == 0; }));
}

TEST_F(AveragesTest, APatternWithoutAParameterIsRefusedBeforeTheRunBegins) {
  try {
    (void)run("r", {"train.prune={end: 9, match: \"*wieght\"}"});
    FAIL() << "it names nothing";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'*wieght' matches no parameter"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(fs::exists(path("r")));
}

/// As zlib's own call compresses it in one piece, but for the header.
TEST_F(AveragesTest, CompressedSizes) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += static_cast<char>(i % 7 == 0 ? i * 31 % 251 : 0);
  write_file_atomically(path("f"), text);
  const CompressedSize size = compressed_size_of(path("f"));
  EXPECT_EQ(size.bytes, text.size());
  uLongf bytes = compressBound(text.size());
  std::vector<Bytef> packed(bytes);
  ASSERT_EQ(compress2(packed.data(), &bytes, reinterpret_cast<const Bytef*>(text.data()), text.size(), 6), Z_OK);
  EXPECT_EQ(size.gzip_bytes, bytes - 6 + 18) << "zlib's header and sum have 6 bytes, gzip's 18";
  write_file_atomically(path("empty"), "");
  EXPECT_EQ(compressed_size_of(path("empty")).bytes, 0u);
  EXPECT_THROW((void)compressed_size_of(path("nothing")), DataError);
}

}  // namespace
}  // namespace bantam::run::averages_test
