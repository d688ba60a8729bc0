// Listing and matching.
#include "bantam/run/init/found_files.h"

#include <algorithm>
#include <cctype>

#include "bantam/base/plain_words.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/run/init/found_data.h"

namespace bantam::run {
namespace fs = std::filesystem;

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::string path_key(const fs::path& path) { return "path: " + yaml_text(path.string()); }

std::vector<fs::path> files_at(const fs::path& at) {
  if (is_file(at)) return {at};
  std::vector<fs::path> files;
  for (const std::string& name : list_folder(at).files) files.push_back(at / name);
  return files;
}

std::vector<fs::path> with_suffix(const fs::path& at, std::span<const std::string_view> suffixes) {
  std::vector<fs::path> found;
  for (const fs::path& file : files_at(at)) {
    const std::string name = lower_case(file.filename().string());
    if (std::ranges::any_of(suffixes, [&](std::string_view suffix) { return name.ends_with(suffix); }))
      found.push_back(file);
  }
  return found;
}

std::string first_of(const std::vector<std::string>& known, std::span<const std::string_view> names) {
  for (const std::string_view name : names)
    for (const std::string& other : known)
      if (lower_case(other) == name) return other;
  return "";
}

bool has_images(const fs::path& folder) { return !list_image_files(folder).names.empty(); }

}  // namespace bantam::run
