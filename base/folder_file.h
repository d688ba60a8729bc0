// Files of folders that may be a stranger's, as that of a run is: nothing outside of the folder is read or written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "bantam/base/file_descriptor.h"
#include "bantam/base/sha256.h"

namespace bantam {

/// A file by its path, whose last `names` names lie in the folder: 1 for RUN/metrics.jsonl, 3 for
/// RUN/checkpoints/update-1/state.safetensors. None of these names may be a symbolic link, and the file must be a
/// regular one, so that opening it waits for nothing. Links before these names are followed: people link the folders of
/// their runs.
struct FolderFile {
  std::filesystem::path path;
  int names = 1;
};

/// Opens the file with `flags` of open(2); with O_CREAT all may read it, as the umask says. Empty where it is not
/// there. Throws DataError naming the file, what is wrong with it and what was expected.
FileDescriptor open_file(const FolderFile& file, int flags);
/// The folder that the file lies in, for openat(2) and its likes. Throws as open_file does, also where it is not there.
FileDescriptor open_folder_of(const FolderFile& file);
/// Names what is in the file's place, no link followed: "a symbolic link", "a FIFO"; empty for a regular file and for
/// none.
std::string what_else_is_at(const FolderFile& file);
/// Whether what is at the path itself, no link followed, is the open file: somebody may have moved or replaced it.
bool leads_to(const std::filesystem::path& path, int descriptor);
/// Throws DataError where one of the last `names` names of a folder's path is a symbolic link. A folder that is not
/// there is none.
void require_no_links(const FolderFile& folder);

/// The whole file, of at most `most_bytes`. Throws DataError naming it and the reason, also where it is not there.
std::string read_file(const FolderFile& file, std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max());

/// Calls `use` with parts of the file in their order, from byte `from` on, until it returns false. Returns whether
/// there is such a file. Throws as open_file does.
bool read_parts(const FolderFile& file, std::uint64_t from, const std::function<bool(std::string_view part)>& use);

/// One line of a file, without its end.
struct FileLine {
  std::string_view text;
  std::uint64_t number = 0;  ///< from 1, counted from where the reading began
  std::uint64_t offset = 0;  ///< of its first byte in the file
  bool is_whole = true;      ///< false: the file ends with it, and it has no end
};
/// Calls `use` with each line from byte `from` on, until it returns false. Returns whether there is such a file. Throws
/// as open_file does.
bool read_lines(const FolderFile& file, std::uint64_t from, const std::function<bool(const FileLine&)>& use);

/// The sum of the file's first `most` bytes, or of all where there are fewer; of nothing where there is no such file.
/// Throws as open_file does.
RunningSum sum_of(const FolderFile& file, std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

}  // namespace bantam
