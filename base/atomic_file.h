// Files that are either whole or not there: written to a temporary name, synced, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bantam/base/folder_file.h"
#include "bantam/base/sha256.h"

namespace bantam {

/// A file being written. Nothing appears at `path` until `commit()`; without it the temporary file is removed.
///
/// A symbolic link is followed: the file that it leads to is replaced (or made). A path that is no regular file (a
/// device, a FIFO, /dev/stdout) is not replaced; the bytes are written to it directly.
class AtomicFile {
 public:
  /// Creates a temporary file beside `path`, whose folder must be there. Throws DataError with the system's reason.
  explicit AtomicFile(std::filesystem::path path);
  /// The same of a file of a folder, where a symbolic link in the file's place is replaced, and what it leads to stays
  /// as it is; anything else that is no regular file is an error.
  explicit AtomicFile(const FolderFile& file);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends bytes. Throws DataError (disk full, …).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Replaces the file's first bytes, which were written before: a header of what is known at the end. Throws
  /// DataError, of a pipe, too. Not with `begin_sum`.
  void rewrite_beginning(std::string_view text);
  /// Flushes, fsyncs file and folder, and renames over `path`.
  void commit();
  const std::filesystem::path& path() const { return path_; }
  /// Before the first byte: adds up what is written, for `sum`.
  void begin_sum() { sum_.emplace(); }
  /// The sum of all that was written so far.
  FileSum sum() const { return sum_->finished(); }

 private:
  bool open_as_it_is(const std::filesystem::path& end);
  void make_temporary();
  std::filesystem::path name_of(const std::filesystem::path& path) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty where `path_` is written to as it is
  FileDescriptor folder_;            // where both lie; none: their paths are as they are
  int descriptor_ = -1;
  std::optional<RunningSum> sum_;
};

/// Names the file that a file of this name is written to until it is complete: ".NAME.1234abcd.tmp".
std::string temporary_name(const std::filesystem::path& file, std::uint32_t number);
/// Whether `name` is such a name of a file of the name that `file` ends with: what a process that was killed leaves.
bool is_temporary_of(const std::filesystem::path& file, std::string_view name);

/// Makes the folder, and those above it, where they are missing, so that their names last. Throws DataError with the
/// system's reason.
void make_folders(const std::filesystem::path& path);

/// Makes a folder "<prefix>XXXXXX" of a new name below the system's folder for temporary files (TMPDIR). Throws
/// DataError with the system's reason.
std::filesystem::path make_temporary_folder(std::string_view prefix);

/// Makes names that were made, renamed or removed in the folder last. Throws DataError; a file system that cannot do it
/// is none of the reasons.
void sync_folder(const std::filesystem::path& folder);

/// Writes the whole text to `path` atomically.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);
void write_file_atomically(const FolderFile& file, std::string_view text);

/// The whole of a regular file or a pipe (a FIFO, `<(command)`), of at most `most_bytes`. Waits for a pipe's writer to
/// close it; a FIFO without a writer is an error after a few seconds. Throws DataError naming the file and the reason:
/// the system's, that it is too large, or that it is a device or a socket.
std::string read_file(const std::filesystem::path& path,
                      std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max());

}  // namespace bantam
