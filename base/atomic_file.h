// Files that are either whole or not there: written to a temporary name, synced, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace bantam {

/// A file being written. Nothing appears at `path` until `commit()`; without it the temporary file is removed.
///
/// A symbolic link is followed: the file that it leads to is replaced (or made). A path that is no regular file (a
/// device, a FIFO, /dev/stdout) is not replaced; the bytes are written to it directly.
class AtomicFile {
 public:
  /// Creates a temporary file beside `path`, whose folder must be there. Throws DataError with the system's reason.
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
  bool open_as_it_is(const std::filesystem::path& end);

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty where `path_` is written to as it is
  int descriptor_ = -1;
};

/// Makes the folder, and those above it, where they are missing, so that their names last. Throws DataError with the
/// system's reason.
void make_folders(const std::filesystem::path& path);

/// Makes names that were made, renamed or removed in the folder last. Throws DataError; a file system that cannot do it
/// is none of the reasons.
void sync_folder(const std::filesystem::path& folder);

/// Writes the whole text to `path` atomically.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// The whole of a regular file or a pipe (a FIFO, `<(command)`), of at most `most_bytes`. Waits for a pipe's writer to
/// close it; a FIFO without a writer is an error after a few seconds. Throws DataError naming the file and the reason:
/// the system's, that it is too large, or that it is a device or a socket.
std::string read_file(const std::filesystem::path& path,
                      std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max());

}  // namespace bantam
