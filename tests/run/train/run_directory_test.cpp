// Folders of runs: made, refused, replaced, opened again.
#include "bantam/run/train/run_directory.h"

#include <optional>

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::run_directory_test {
namespace {

using RunDirectoryTest = RunTest;

TEST_F(RunDirectoryTest, AnEmptyFolderThatItMadeIsRemoved) {
  { const RunDirectory made = RunDirectory::create(path("a"), "tiny", false); }
  EXPECT_FALSE(std::filesystem::exists(path("a")));
  std::filesystem::create_directory(path("b"));
  { const RunDirectory found = RunDirectory::create(path("b"), "tiny", false); }
  EXPECT_TRUE(std::filesystem::exists(path("b"))) << "somebody else's stays";
  {
    const RunDirectory made = RunDirectory::create(path("c"), "tiny", false);
    write_file_atomically(made.metrics(), "{}\n");
  }
  EXPECT_TRUE(std::filesystem::exists(path("c/metrics.jsonl")));
}

TEST_F(RunDirectoryTest, ARunIsReplacedOnlyWhereThatIsWanted) {
  std::filesystem::create_directory(path("r"));
  write_file_atomically(path("r/config.yaml"), "seed: 1\n");
  write_file_atomically(path("r/notes.txt"), "mine");
  EXPECT_THROW(RunDirectory::require_free(path("r"), false), ConfigError);
  EXPECT_THROW(RunDirectory::create(path("r"), "tiny", false), ConfigError);
  RunDirectory::require_free(path("r"), true);
  EXPECT_TRUE(std::filesystem::exists(path("r/config.yaml"))) << "asking changes nothing";
  const RunDirectory replaced = RunDirectory::create(path("r"), "tiny", true);
  EXPECT_TRUE(std::filesystem::exists(path("r/config.yaml"))) << "the old run stays until the new one begins";
  replaced.clear();
  EXPECT_FALSE(std::filesystem::exists(path("r/config.yaml")));
  EXPECT_EQ(read_file(path("r/notes.txt")), "mine");
}

TEST_F(RunDirectoryTest, IsLockedWhileItLives) {
  std::optional<RunDirectory> first(RunDirectory::create(path("r"), "tiny", false));
  write_file_atomically(first->config(), "");
  EXPECT_THROW(RunDirectory::open(path("r")), ConfigError);
  EXPECT_THROW(RunDirectory::require_free(path("r"), true), ConfigError);
  first.reset();
  EXPECT_EQ(RunDirectory::open(path("r")).path(), path("r"));
}

TEST_F(RunDirectoryTest, OpensOnlyWhatWasSaved) {
  EXPECT_THROW(RunDirectory::open(path("none")), DataError);
  std::filesystem::create_directory(path("r"));
  EXPECT_THROW(RunDirectory::open(path("r")), DataError) << "without a configuration there is nothing to begin";
  write_file_atomically(path("r/config.yaml"), "");
  EXPECT_FALSE(RunDirectory::open(path("r")).chosen());
  write_file_atomically(path("r/state.safetensors"), "");
  EXPECT_THROW(RunDirectory::open(path("r")), DataError) << "of an earlier version";
}

TEST_F(RunDirectoryTest, AFileIsNoFolder) {
  write_file_atomically(path("f"), "");
  EXPECT_THROW(RunDirectory::require_free(path("f"), true), DataError);
}

}  // namespace
}  // namespace bantam::run::run_directory_test
