// One holder at a time, and a file that goes with it.
#include "bantam/run/train/run_lock.h"

#include "bantam/base/error.h"
#include "bantam/run/train/train.h"
#include "tests/base/failing_flock.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::run_lock_test {
namespace {

using RunLockTest = RunTest;

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_F(RunLockTest, IsLockedOnce) {
  RunLock::require_free(path("."));
  {
    const RunLock lock(path("."));
    const std::string process = "in use by process " + std::to_string(::getpid()) + " (";
    EXPECT_NE(message_of([&] { RunLock second(path(".")); }).find(process), std::string::npos);
    EXPECT_NE(message_of([&] { RunLock::require_free(path(".")); }).find(process), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(path(".lock")));
  RunLock::require_free(path("."));
  const RunLock again(path("."));
}

TEST_F(RunLockTest, AFileThatNobodyHoldsIsFree) {
  write_file_atomically(path(".lock"), "99999\nelsewhere\nbantam train\n");
  RunLock::require_free(path("."));
  const RunLock lock(path("."));
  EXPECT_EQ(read_file(path(".lock")).rfind(std::to_string(::getpid()) + "\n", 0), 0u) << "the holder has signed";
}

TEST_F(RunLockTest, AFileSystemWithoutLocksIsToldOnce) {
  struct Warnings : RunObserver {
    void on_warning(std::string_view text) override { told += text.find("has no locks (flock)") != std::string::npos; }
    int told = 0;
  } warnings;
  g_error = ENOLCK;
  for (const char* run : {"a", "b"}) {
    train(tiny({"train.max_updates=1"}), {.threads = 1, .folder = path(run)}, {}, {.observer = &warnings});
    EXPECT_FALSE(std::filesystem::exists(path(run) / ".lock"));
  }
  g_error = 0;
  EXPECT_EQ(warnings.told, 1);
}

TEST_F(RunLockTest, LeavesWhatTheFileLeadsTo) {
  write_file_atomically(path("theirs"), "theirs");
  std::filesystem::create_hard_link(path("theirs"), path(".lock"));
  { const RunLock lock(path(".")); }
  EXPECT_EQ(read_file(path("theirs")), "theirs");
  std::filesystem::create_symlink(path("theirs"), path(".lock"));
  EXPECT_THROW(RunLock(path(".")), DataError);
  EXPECT_EQ(read_file(path("theirs")), "theirs");
}

TEST_F(RunLockTest, NeedsAFolder) { EXPECT_THROW(RunLock(path("none")), DataError); }

}  // namespace
}  // namespace bantam::run::run_lock_test
