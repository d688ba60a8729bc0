// Lists the entries of a folder, and removes folders.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace bantam {

struct FolderEntry {
  std::string name;
  bool is_folder = false;  ///< or a link to one
};

/// Lists a folder, in no order, without "." and "..". Where it cannot be read: `error` says why, and the list
/// has what was read. Throws std::bad_alloc. In place of std::filesystem::directory_iterator, which ends the process
/// where memory ends (it is noexcept within libstdc++).
std::vector<FolderEntry> list_entries(const std::filesystem::path& folder, std::error_code& error);

/// The paths of `list_entries`.
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder, std::error_code& error);

/// Removes what is at `path` with all that lies in it; links are removed, and not followed. Nothing there is no error;
/// where something stays, `error` says why, also where memory ends. In place of std::filesystem::remove_all, which
/// walks through folders as directory_iterator does.
void remove_folder(const std::filesystem::path& path, std::error_code& error) noexcept;

}  // namespace bantam
