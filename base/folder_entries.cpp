// Folders, read by POSIX calls.
#include "bantam/base/folder_entries.h"

#include <cerrno>
#include <memory>
#include <string_view>

#include <dirent.h>

namespace bantam {

std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder, std::error_code& error) {
  const auto close = [](DIR* open) { closedir(open); };
  const std::unique_ptr<DIR, decltype(close)> open(opendir(folder.c_str()), close);
  std::vector<std::filesystem::path> entries;
  errno = open == nullptr ? errno : 0;
  while (open != nullptr) {
    errno = 0;
    const dirent* const entry = readdir(open.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") entries.push_back(folder / name);
  }
  error.assign(errno, std::generic_category());
  return entries;
}

}  // namespace bantam
