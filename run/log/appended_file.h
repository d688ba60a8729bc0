// AppendedFile: a file of a run that grows by whole records, and may have no room for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace bantam::run {

/// Records are buffered until `flush`. A file that cannot be written ends no run: `warn` is called once, the records
/// stay in the buffer (at most kMostWaiting bytes of them) and are written when there is room. Used by one thread.
class AppendedFile {
 public:
  static constexpr std::size_t kMostWaiting = std::size_t{16} << 20;

  /// The file, and its folder and that one's where `makes_folder`, is made with the first record. With an empty path
  /// nothing is written: of a rank that has no folder. `unit` names records in warnings
  /// ("lines"). `warn` must not throw.
  AppendedFile(std::filesystem::path path, std::string unit, std::function<void(std::string_view)> warn,
               bool makes_folder = false);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Buffers one record, its end of line included.
  void add(std::string_view record);
  /// Writes what is buffered, as much as there is room for.
  void flush();
  /// Bytes of the file, with those that are buffered.
  std::uint64_t bytes() const;
  /// Before the first record: removes what follows the first `bytes` of the file. `warn` is told where the file is
  /// shorter, and stays so, and where it cannot be cut: then the records to come wait until it can.
  void cut(std::uint64_t bytes);
  /// The last flush; says what the file lacks where there was no room.
  void end();
  /// Whether the file has all records.
  bool complete() const { return waiting_.empty() && !cut_to_ && dropped_ + lost_ == 0; }

 private:
  int cut_now();
  int write_waiting();
  int open_file();

  std::filesystem::path path_;
  std::string unit_;
  std::function<void(std::string_view)> warn_;
  bool makes_folder_;
  int descriptor_ = -1;
  std::string waiting_;       // whole records, of which the first may be written in part
  std::int64_t dropped_ = 0;  // records that waited in vain
  std::int64_t lost_ = 0;     // those of them that were told
  bool failing_ = false;
  std::optional<std::uint64_t> cut_to_;  // bytes that are to stay of a file that could not be cut
};

}  // namespace bantam::run
