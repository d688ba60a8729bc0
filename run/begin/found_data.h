// What a folder's files are, as the section `data` of a configuration names them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace bantam::run {

struct FoundData {
  std::string format;             ///< of `data.format`
  std::vector<std::string> keys;  ///< the section's further lines, in YAML: "path: data/flowers.csv"
};

/// Looks at names, a CSV's first rows and an archive's members; no sample is read. A folder that has one folder and
/// nothing else stands for that one. Throws DataError that says what was looked for.
FoundData find_data(const std::filesystem::path& at);

/// Text as a value in YAML, in quotes where it needs them.
std::string yaml_text(std::string_view text);

}  // namespace bantam::run
