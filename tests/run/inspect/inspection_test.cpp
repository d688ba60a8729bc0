// Files, checkpoints and runs looked into; and what is none of these.
#include "bantam/run/inspect/inspection.h"

#include <fstream>
#include <functional>

#include "bantam/base/error.h"
#include "bantam/base/sha256.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::inspection_test {
namespace {

namespace fs = std::filesystem;

class InspectionTest : public RunTest {
 protected:
  static std::string error_of(const fs::path& path) {
    try {
      (void)inspect(path);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
  void write_file() const {
    SafetensorsFile file;
    file.metadata = {{"format", "bantam"}, {"note", "mine"}};
    file.tensors["a"] = {DType::uint8, Shape{2, 2}, std::vector<std::byte>(4, std::byte{3})};
    file.tensors["b"] = {DType::float32, Shape{}, std::vector<std::byte>(4)};
    write_safetensors(path("f.safetensors"), file);
  }
};

TEST_F(InspectionTest, AFile) {
  write_file();
  const Inspection inspection = inspect(path("f.safetensors"));
  EXPECT_FALSE(inspection.facts);
  ASSERT_EQ(inspection.files.size(), 1u);
  const InspectedFile& file = inspection.files[0];
  EXPECT_EQ(file.bytes, fs::file_size(path("f.safetensors")));
  EXPECT_EQ(file.sha256, sha256_of(read_file(path("f.safetensors"))));
  EXPECT_TRUE(file.has_checksum);
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "bantam"}, {"note", "mine"}}));
  EXPECT_EQ(file.elements(), 5);
  EXPECT_EQ(file.parameters(), 5);
  EXPECT_EQ(file.tensor_bytes(), 8u);
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors[0].name, "a");
  EXPECT_EQ(file.tensors[0].shape, (Shape{2, 2}));
  EXPECT_EQ(file.tensors[0].statistics.mean, 3);
  EXPECT_EQ(file.tensors[1].statistics.zeros, 1);
}

TEST_F(InspectionTest, ACheckpointAndARun) {
  const Outcome outcome = train(tiny(), {.threads = 1, .folder = path("r")});
  const fs::path newest = CheckpointFolder(path("r")).list().at(0).path;
  for (const fs::path& given : {path("r"), path("r") / "", newest, newest / ""}) {
    const Inspection inspection = inspect(given);
    EXPECT_EQ(inspection.checkpoint, newest) << given;
    ASSERT_TRUE(inspection.facts);
    EXPECT_EQ(inspection.facts->updates, 12);
    EXPECT_EQ(inspection.facts->epoch, 2);
    ASSERT_EQ(inspection.files.size(), 2u);
    EXPECT_EQ(inspection.files[0].parameters(), outcome.parameters);
    EXPECT_GT(inspection.files[0].elements(), outcome.parameters) << "the state has more than the weights";
    EXPECT_EQ(inspection.files[1].path.filename(), "weights.safetensors");
  }
  fs::copy(newest, path("copied"));
  EXPECT_TRUE(inspect(path("copied")).facts) << "a checkpoint that lies elsewhere";
  fs::remove_all(path("r/checkpoints"));
  const Inspection weights = inspect(path("r"));
  EXPECT_FALSE(weights.facts);
  EXPECT_EQ(weights.files.at(0).path, path("r/weights.safetensors"));
  fs::remove(path("r/weights.safetensors"));
  EXPECT_NE(error_of(path("r")).find("is a run without a checkpoint"), std::string::npos) << error_of(path("r"));
}

TEST_F(InspectionTest, DamageIsNamed) {
  EXPECT_NE(error_of(path("none")).find("No such file"), std::string::npos);
  EXPECT_NE(error_of(path("")).find("without a checkpoint or a run"), std::string::npos);
  write_file();
  std::string text = read_file(path("f.safetensors"));
  text.back() ^= 1;
  std::ofstream(path("f.safetensors")) << text;
  EXPECT_NE(error_of(path("f.safetensors")).find("f.safetensors: damaged: its tensors have the checksum"),
            std::string::npos)
      << error_of(path("f.safetensors"));
  (void)train(tiny({"train.epochs=1"}), {.threads = 1, .folder = path("r")});
  fs::remove(CheckpointFolder(path("r")).list().at(0).facts());
  EXPECT_NE(error_of(path("r")).find("checkpoint.json"), std::string::npos) << error_of(path("r"));
}

}  // namespace
}  // namespace bantam::run::inspection_test
