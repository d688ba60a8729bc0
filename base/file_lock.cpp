// One call, and which of its errors mean that there are no locks.
#include "bantam/base/file_lock.h"

#include <atomic>
#include <cerrno>

#include <sys/file.h>

namespace bantam {

FileLock try_lock_file(int descriptor, int kind) {
  while (::flock(descriptor, kind | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return FileLock::taken;
    if (errno != EINTR) return FileLock::none;  // ENOSYS, ENOTSUP, ENOLCK
  }
  return FileLock::locked;
}

bool is_first_without_locks() {
  static std::atomic<bool> told = false;
  return !told.exchange(true);
}

}  // namespace bantam
