// Locks of files by flock(2), and file systems that have none.
#pragma once

#include <cstdint>

namespace bantam {

/// `none`: the file system has no locks.
enum class FileLock : std::uint8_t { locked, taken, none };

/// Tries to lock an open file, LOCK_EX to own it or LOCK_SH to look whether somebody does, without waiting. The lock
/// goes with the descriptor.
FileLock try_lock_file(int descriptor, int kind);

/// Returns true once a process: the caller that is first to find a file system without locks tells of it.
bool is_first_without_locks();

}  // namespace bantam
