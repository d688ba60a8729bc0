// AppendedFile: a file of a run that grows by whole records, and may have no room for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "bantam/base/folder_file.h"

namespace bantam::run {

/// Records are buffered until `flush`. A file that cannot be written ends no run: `warn` is called once, the records
/// stay in the buffer (at most kMostWaiting bytes of them) and are written when there is room. Used by one thread.
class AppendedFile {
 public:
  static constexpr std::size_t kMostWaiting = std::size_t{16} << 20;

  /// The file is made with the first record. Its last `names` names lie in the run's folder (FolderFile), and folders
  /// among them are made, too. With an empty path nothing is written: of a rank that has no folder. `unit` names
  /// records in warnings; "lines" end with a newline. `warn` must not throw.
  AppendedFile(FolderFile file, std::string unit, std::function<void(std::string_view)> warn);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  const std::filesystem::path& path() const { return file_.path; }
  /// Buffers one record, its end of line included.
  void add(std::string_view record);
  /// Writes what is buffered, as much as there is room for.
  void flush();
  /// Length of the file, with the records that are buffered.
  std::uint64_t bytes();
  /// Length and SHA-256 of the file, with the records that are buffered. A file that somebody has moved, replaced or
  /// changed is read for it.
  FileSum position();
  /// Says how the file differs where it does not begin with these bytes; empty: it does. A position without a SHA-256,
  /// which earlier programs wrote, fits all bytes. Changes nothing.
  std::string difference_from(const FileSum& position) const;
  /// Before the first record: removes what follows the first bytes of the file. `warn` is called where the file is
  /// shorter, and stays so, and where it cannot be read or cut: then the records to come wait until it can be cut. A
  /// file of other bytes is copied beside it first, and its whole lines until there stay; of other records none do.
  void cut(const FileSum& position);
  /// The last flush; says what the file lacks where there was no room.
  void end();
  /// Whether the file has all records.
  bool complete() const { return waiting_.empty() && !cut_to_ && dropped_ + lost_ == 0; }

 private:
  std::string cut_now();
  std::string write_waiting();
  std::string open_file();
  void follow();
  void keep_copy(const FileSum& position);

  FolderFile file_;
  std::string unit_;
  std::function<void(std::string_view)> warn_;
  FileDescriptor descriptor_;
  RunningSum sum_;            // of what is in the file
  std::string waiting_;       // whole records, of which the first may be written in part
  std::int64_t dropped_ = 0;  // records that waited in vain
  std::int64_t lost_ = 0;     // those of them that were reported
  bool failing_ = false;
  std::optional<std::uint64_t> cut_to_;  // bytes that are to stay of a file that could not be cut
};

}  // namespace bantam::run
