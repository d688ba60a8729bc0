// Files of algorithm choices: what is written is read, and nothing else is accepted as one.
#include "bantam/engine/runtime/algorithm_file.h"

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"

namespace bantam::algorithm_file_test {
namespace {

class AlgorithmFileTest : public ::testing::Test {
 protected:
  std::filesystem::path path_ = std::filesystem::path(::testing::TempDir()) / "bantam-algorithms" / "file.json";
  void SetUp() override {
    std::filesystem::remove_all(path_.parent_path());
    make_folders(path_.parent_path());
  }
};

TEST_F(AlgorithmFileTest, ReturnsWhatWasWritten) {
  const AlgorithmMap choices{{"cudnn 91900 forward float16 x=1", "12:2=1:5=0"}, {"cublaslt \"quoted\"", "1f.0"}};
  write_algorithms(path_, "NVIDIA H200", choices);
  EXPECT_EQ(read_algorithms(path_, "NVIDIA H200"), choices);
  write_algorithms(path_, "NVIDIA H200", {});
  EXPECT_EQ(read_algorithms(path_, "NVIDIA H200"), AlgorithmMap{});
}

TEST_F(AlgorithmFileTest, RefusesWhatIsMissingDamagedOrForeign) {
  EXPECT_THROW(read_algorithms(path_, "NVIDIA H200"), DataError);
  write_algorithms(path_, "NVIDIA H200", {{"a", "b"}});
  EXPECT_THROW(read_algorithms(path_, "NVIDIA H100"), DataError);
  const std::string whole = read_file(path_);
  write_file_atomically(path_, whole.substr(0, whole.size() / 2));
  EXPECT_THROW(read_algorithms(path_, "NVIDIA H200"), DataError);
  for (const char* text : {"[]", "{}", R"({"format": "bantam algorithms 1", "device": "NVIDIA H200"})",
                           R"({"format": "bantam algorithms 2", "device": "NVIDIA H200", "choices": {}})",
                           R"({"format": "bantam algorithms 1", "device": "NVIDIA H200", "choices": {"a": 1}})"}) {
    write_file_atomically(path_, text);
    EXPECT_THROW(read_algorithms(path_, "NVIDIA H200"), DataError) << text;
  }
}

}  // namespace
}  // namespace bantam::algorithm_file_test
