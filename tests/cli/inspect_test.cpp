// `bantam inspect` as users run it.
#include "bantam/base/text.h"
#include "tests/cli/program.h"

namespace bantam::cli::inspect_test {
namespace {

class Inspect : public ProgramTest {
 protected:
  Inspect() {
    write_tiny_config();
    EXPECT_EQ(train("r").code, 0);
  }
};

TEST_F(Inspect, AWeightsFile) {
  const Outcome outcome = run({"inspect", "r/weights.safetensors", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = outcome.last_json();
  EXPECT_FALSE(json.contains("checkpoint"));
  const nlohmann::json& file = json.at("files").at(0);
  EXPECT_EQ(file["checksum"], "sound");
  EXPECT_EQ(file["sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(file["bytes"], std::filesystem::file_size(path("r/weights.safetensors")));
  std::int64_t elements = 0;
  for (const auto& tensor : file["tensors"]) {
    std::int64_t product = 1;
    for (const auto& extent : tensor["shape"]) product *= extent.get<std::int64_t>();
    elements += product;
    EXPECT_LE(tensor["min"].get<double>(), tensor["mean"].get<double>()) << tensor;
    EXPECT_LE(tensor["mean"].get<double>(), tensor["max"].get<double>()) << tensor;
    EXPECT_EQ(tensor["not_finite"], 0) << tensor;
  }
  EXPECT_EQ(file["elements"], elements);
}

TEST_F(Inspect, TellsTheSparsityOfEachLayerOfAPrunedModel) {
  EXPECT_EQ(run({"inspect", "r"}).out.find("sparsity"), std::string::npos) << "a dense model";
  ASSERT_EQ(train("pruned", {"train.prune={final: 0.5, end: 8, frequency: 4}"}).code, 0);
  const Outcome words = run({"inspect", "pruned"});
  EXPECT_NE(words.out.find("sparsity"), std::string::npos) << words.out;
  EXPECT_NE(words.out.find("50.0%"), std::string::npos) << words.out;
  const nlohmann::json layers = run({"inspect", "pruned", "--json"}).last_json().at("files").at(0).at("sparsity");
  ASSERT_FALSE(layers.empty());
  for (const auto& layer : layers) EXPECT_EQ(2 * layer["zeros"].get<std::int64_t>(), layer["weights"]) << layer;
}

TEST_F(Inspect, ARunIsItsNewestCheckpoint) {
  const nlohmann::json json = run({"inspect", "r", "--json"}).last_json();
  EXPECT_EQ(json.at("checkpoint")["updates"], 16);
  EXPECT_EQ(json["checkpoint"]["path"], "r/checkpoints/update-00000016");
  EXPECT_EQ(json["files"].size(), 2u);
  EXPECT_EQ(run({"inspect", "r/checkpoints/update-00000016", "--json"}).last_json(), json);
  const Outcome words = run({"inspect", "r"});
  for (const char* part : {"16 updates: 1 epoch", "optimizer/moment1/dense/weight", "checksum    sound", "sha256  "})
    EXPECT_NE(words.out.find(part), std::string::npos) << part << "\n" << words.out;
  std::istringstream lines(words.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 80u) << line;
}

TEST_F(Inspect, DamageIsNamedWithExitCode3) {
  std::string text = read("r/weights.safetensors");
  text[text.size() / 2] ^= 1;
  write("r/weights.safetensors", text);
  const Outcome damaged = run({"inspect", "r/weights.safetensors"});
  EXPECT_EQ(damaged.code, 3);
  EXPECT_NE(damaged.err.find("r/weights.safetensors: damaged: its tensors have the checksum"), std::string::npos)
      << damaged.err;
  EXPECT_EQ(damaged.out, "");
  EXPECT_EQ(run({"inspect", "tiny.yaml"}).code, 3);
  EXPECT_EQ(run({"inspect", "nothing"}).code, 3);
  EXPECT_EQ(run({"inspect", "."}).code, 3);
  EXPECT_EQ(run({"inspect"}).code, 2);
  std::filesystem::resize_file(newest("r"), 100);
  const Outcome cut = run({"inspect", "r"});
  EXPECT_EQ(cut.code, 3);
  EXPECT_NE(cut.err.find("state.safetensors: damaged: it has 100 bytes"), std::string::npos) << cut.err;
}

TEST_F(Inspect, HelpEndsWithAnExample) {
  const Outcome outcome = run({"inspect", "--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.ends_with("Example: bantam inspect runs/quickstart/weights.safetensors\n")) << outcome.out;
  EXPECT_LE(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 24);
}

}  // namespace
}  // namespace bantam::cli::inspect_test
