// One process at a time writes to a run's folder.
#pragma once

#include <filesystem>
#include <string>

#include "bantam/base/folder_file.h"

namespace bantam::run {

/// Locks `<folder>/.lock` by flock, which the system releases however the process ends; the file names its owner, and
/// is removed at the end. On file systems without flock nothing is locked (holds() is false).
class RunLock {
 public:
  /// Throws ConfigError naming process and command where another process has the folder, and DataError where the file
  /// cannot be made. `folder` must be there.
  explicit RunLock(std::filesystem::path folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  /// Whether the file system keeps others out.
  bool holds() const { return holds_; }

  /// Throws ConfigError as the constructor would, and changes nothing.
  static void require_free(const std::filesystem::path& folder);
  /// Whether a process has the folder. Changes nothing.
  static bool is_locked(const std::filesystem::path& folder);

 private:
  std::filesystem::path path_;
  FileDescriptor descriptor_;
  bool holds_ = true;
};

/// The process' command as one line, control characters as spaces; "bantam" where the system does not tell it.
std::string command_line();

/// This machine's; empty where the system does not tell it.
std::string host_name();

}  // namespace bantam::run
