// One holder at a time, and a file that goes with it.
#include "bantam/run/session/run_lock.h"

#include <unistd.h>

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run {
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

TEST_F(RunLockTest, NeedsAFolder) { EXPECT_THROW(RunLock(path("none")), DataError); }

}  // namespace
}  // namespace bantam::run
