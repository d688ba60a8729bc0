// Paths in configurations: `~` and variables of the environment, and the folders that a relative path is looked for
// in. Internal to the readers of configurations and to the program's arguments.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/config/config.h"

namespace bantam {

/// `text` with a leading `~` or `~user` as that user's home folder, and with the values of `$NAME` and `${NAME}`. A `$`
/// that no name follows stays. Throws ConfigError for a user who is not there and for a variable that is not set.
std::string expanded_path(std::string_view text);

/// The same of a value: text as it stands where a file or folder has exactly that name. Throws ConfigError at it.
std::string expanded_path(const ConfigNode& node);

/// Where a path that a configuration names was looked for.
struct FoundPath {
  std::filesystem::path path;  ///< in the first folder that has it; where none has, as it was given, expanded
  bool is_there = false;
  std::vector<std::filesystem::path> folders;  ///< absolute, that were looked into; none of an absolute path

  /// ": neither in the current folder (/home/me) nor in /home/me/configs", of what is not there; empty of an absolute
  /// path.
  std::string places() const;
};

/// The file or folder `text`, which is expanded: a relative one is looked for in the current folder, then in the
/// configuration's, then in those of add_search_folders. The document notes the folder that had it. `at`: where errors
/// point.
FoundPath find_path(const ConfigNode& at, std::string_view text);
FoundPath find_path(const ConfigNode& node);

/// find_path(node).path: for what may be missing until it is used.
std::filesystem::path as_path(const ConfigNode& node);
/// The same; throws ConfigError at the value where there is no such file, saying where it was looked for. In a
/// description nothing is looked for.
std::filesystem::path as_file(const ConfigNode& node);
/// The same for a folder.
std::filesystem::path as_folder(const ConfigNode& node);

/// Relative paths of the document are looked for in these, too. A relative one is within the configuration's folder.
void add_search_folders(const ConfigDocument& document, const std::vector<std::string>& folders);
/// Absolute folders that had relative paths of the document, in the order in which they were found.
std::vector<std::filesystem::path> folders_of_found_paths(const ConfigDocument& document);

}  // namespace bantam
