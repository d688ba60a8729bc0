// Files that are either whole or not there: written to a temporary name, synced, then renamed.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace bantam {

/// A file being written. Nothing appears at `path` until `commit()`; without it the temporary file is removed.
class AtomicFile {
 public:
  /// Creates missing parent folders and a temporary file beside `path`. Throws DataError with the system's reason.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends bytes. Throws DataError (disk full, …).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Flushes, fsyncs file and folder, and renames over `path`.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

/// Writes the whole text to `path` atomically.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// The whole file; throws DataError naming it and the system's reason.
std::string read_file(const std::filesystem::path& path);

}  // namespace bantam
