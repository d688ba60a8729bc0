// Locks, and a file system without them, which flock() of this program stands for.
#include "bantam/base/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"
#include "tests/base/failing_flock.h"

namespace bantam::file_lock_test {
namespace {

TEST(FileLock, IsTakenOnceAndMissingWhereTheFileSystemHasNone) {
  const std::filesystem::path folder = make_temporary_folder("bantam-lock-");
  const FileDescriptor first = open_file({.path = folder / "f"}, O_RDWR | O_CREAT);
  const FileDescriptor second = open_file({.path = folder / "f"}, O_RDONLY);
  EXPECT_EQ(try_lock_file(first.get(), LOCK_EX), FileLock::locked);
  EXPECT_EQ(try_lock_file(second.get(), LOCK_SH), FileLock::taken);
  for (const int error : {ENOSYS, ENOTSUP, ENOLCK}) {
    g_error = error;
    EXPECT_EQ(try_lock_file(second.get(), LOCK_EX), FileLock::none) << error;
  }
  g_error = 0;
  EXPECT_TRUE(is_first_without_locks());
  EXPECT_FALSE(is_first_without_locks());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace bantam::file_lock_test
