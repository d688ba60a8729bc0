// The text of a configuration's file, which may lie in a run's folder.
#pragma once

#include <filesystem>
#include <string>

namespace bantam::run {

/// The file's text. A run's config.yaml (run.json lies beside it) is a file of the run's folder (FolderFile). Throws
/// ConfigError where it cannot be read, DataError where it leads out of that folder.
std::string read_config_text(const std::filesystem::path& path);

}  // namespace bantam::run
