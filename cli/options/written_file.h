// The file that a verb writes: the one of -o, which may be replaced, or a new one named after what is read.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam::cli {

/// `out`; where that is empty, "<name of what is read>-<whose>.safetensors" in the current folder. Throws ConfigError
/// where that is there already, and where `out` is the file that is read.
inline std::string file_to_write(const std::string& out, const std::filesystem::path& read, std::string_view whose) {
  std::error_code error;
  if (!out.empty()) {
    if (std::filesystem::equivalent(read, out, error)) throw ConfigError("-o names the file that is read");
    return out;
  }
  const std::filesystem::path named = read.filename().empty() ? read.parent_path() : read;
  std::string file = fmt::format(
      "{}-{}.safetensors",
      std::filesystem::is_directory(named, error) ? named.filename().string() : named.stem().string(), whose);
  if (std::filesystem::exists(file, error))
    throw ConfigError(fmt::format("{} is there already: -o {} replaces it", printable(file), printable(file)));
  return file;
}

/// Throws ConfigError, before the work is done that `file` is written for, where it is there already and not to be
/// overwritten, or its folder is missing. Empty: nothing is written.
inline void require_place(const std::string& flag, const std::string& file, bool overwrite) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code error;
  if (!file.empty() && !overwrite && std::filesystem::is_regular_file(file, error))
    throw ConfigError(
        fmt::format("{}: {} is there already; expected a new file, or --overwrite", flag, printable(file)));
  if (!file.empty() && !folder.empty() && !std::filesystem::is_directory(folder, error))
    throw ConfigError(fmt::format("{}: there is no folder {}", flag, printable(folder.string())));
}

}  // namespace bantam::cli
