// The tables of kernels (README.md of each family) name existing files only.
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"

namespace bantam::readmes_test {
namespace {

namespace fs = std::filesystem;

/// Whether `path` exists: "few_channels_*.cu" stands for one file or more, "name.{h,cpp}" for each of its files.
bool is_there(const fs::path& path) {
  const std::string text = path.string();
  if (std::smatch braces; std::regex_match(text, braces, std::regex(R"((.*)\{(.*)\}(.*))"))) {
    std::istringstream parts(braces[2]);
    for (std::string part; std::getline(parts, part, ',');)
      if (!is_there(braces[1].str() + part + braces[3].str())) return false;
    return true;
  }
  if (text.find('*') == std::string::npos) return fs::exists(path);
  const std::regex name(std::regex_replace(path.filename().string(), std::regex("\\*"), ".*"));
  for (const auto& entry : fs::directory_iterator(path.parent_path()))
    if (std::regex_match(entry.path().filename().string(), name)) return true;
  return false;
}

TEST(Readmes, NameExistingFiles) {
  const fs::path root = BANTAM_SOURCE_DIR;
  const std::regex named(R"(`([\w./{},*-]+(\.(h|cpp|cu|cuh|md|py|sh|txt|yaml)|\}|/))`)");
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root / "kernels")) {
    const fs::path folder = entry.path().parent_path();
    if (entry.path().filename() != "README.md" || folder == root / "kernels") continue;
    const std::string text = read_file(entry.path());
    for (std::sregex_iterator at(text.begin(), text.end(), named), end; at != end; ++at, ++count)
      EXPECT_TRUE(is_there(folder / (*at)[1].str()) || is_there(root / (*at)[1].str()))
          << entry.path() << " names " << (*at)[1];
  }
  EXPECT_GT(count, 400) << "the tables were not found";
}

}  // namespace
}  // namespace bantam::readmes_test
