// Folders, read by POSIX calls.
#include "bantam/base/folder_entries.h"

#include <cerrno>
#include <memory>
#include <new>
#include <string_view>

#include <dirent.h>

namespace bantam {

namespace {

/// A file system that does not say what an entry is, and a link, cost a call of their own.
bool is_folder(const std::filesystem::path& folder, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN && entry.d_type != DT_LNK) return entry.d_type == DT_DIR;
  std::error_code none;
  return std::filesystem::is_directory(folder / entry.d_name, none);
}

}  // namespace

std::vector<FolderEntry> list_entries(const std::filesystem::path& folder, std::error_code& error) {
  const auto close = [](DIR* open) { closedir(open); };
  const std::unique_ptr<DIR, decltype(close)> open(opendir(folder.c_str()), close);
  std::vector<FolderEntry> entries;
  errno = open == nullptr ? errno : 0;
  while (open != nullptr) {
    errno = 0;
    const dirent* const entry = readdir(open.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") entries.push_back({std::string(name), is_folder(folder, *entry)});
  }
  error.assign(errno, std::generic_category());
  return entries;
}

std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder, std::error_code& error) {
  std::vector<std::filesystem::path> paths;
  for (const FolderEntry& entry : list_entries(folder, error)) paths.push_back(folder / entry.name);
  return paths;
}

void remove_folder(const std::filesystem::path& path, std::error_code& error) noexcept {
  error.clear();
  try {
    if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::directory) {
      std::error_code first;
      for (const std::filesystem::path& entry : folder_entries(path, error)) {
        std::error_code inner;
        remove_folder(entry, inner);
        if (inner && !first) first = inner;
      }
      if (first) error = first;
      if (error) return;
    }
    std::filesystem::remove(path, error);
    if (error == std::errc::no_such_file_or_directory) error.clear();
  } catch (const std::bad_alloc&) {
    error = std::make_error_code(std::errc::not_enough_memory);
  }
}

}  // namespace bantam
