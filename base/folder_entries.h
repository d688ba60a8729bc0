// What lies in a folder.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace bantam {

/// The paths of what lies in `folder`, in no order, without "." and "..". Where it cannot be read: `error` says why,
/// and the list has what was read. Throws std::bad_alloc. In place of std::filesystem::directory_iterator, which ends
/// the process where memory ends (it is noexcept within libstdc++).
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder, std::error_code& error);

}  // namespace bantam
