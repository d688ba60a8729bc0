// The list of installed headers, as CMake reads it.
#pragma once

#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bantam/base/atomic_file.h"

namespace bantam::testing {

/// Paths from the repository's root, from cmake/PublicHeaders.cmake.
inline const std::set<std::string>& public_headers() {
  static const std::set<std::string> headers = [] {
    std::set<std::string> found;
    std::istringstream lines(read_file(std::filesystem::path(BANTAM_SOURCE_DIR) / "cmake/PublicHeaders.cmake"));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("#")) continue;
      const std::size_t end = line.find(".h");
      if (end == std::string::npos) continue;
      const std::size_t begin = line.find_first_not_of(' ');
      found.insert(line.substr(begin, end + 2 - begin));
    }
    return found;
  }();
  return headers;
}

/// What stands between the quotes or brackets of each #include.
inline std::vector<std::string> includes_of(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    if (!line.starts_with("#include\"") && !line.starts_with("#include<")) continue;
    const std::size_t begin = 9;
    found.push_back(line.substr(begin, line.find_first_of("\">", begin) - begin));
  }
  return found;
}

}  // namespace bantam::testing
