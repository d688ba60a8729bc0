// File names taken apart from their end.
#include "bantam/data/formats/idx_files.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <system_error>
#include <vector>

#include "bantam/data/formats/image_files.h"

namespace bantam {
namespace fs = std::filesystem;
namespace {

/// The parts of a file's name: "emnist-letters", "train", "images".
struct Role {
  std::string set, part, field;
};

bool take_end(std::string& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.resize(text.size() - end.size());
  return true;
}

/// The last word of dashes, which is taken off `text`.
std::string take_word(std::string& text) {
  const std::size_t dash = text.rfind('-');
  std::string word = dash == std::string::npos ? text : text.substr(dash + 1);
  text.resize(dash == std::string::npos ? 0 : dash);
  return word;
}

/// Empty parts: the name is none of a set's.
Role role_of(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return c == '.' || c == '_' ? '-' : static_cast<char>(std::tolower(c));
  });
  (void)take_end(name, "-gz");
  for (const std::string_view end : {"-ubyte", "-idx3", "-idx1", "-idx"}) (void)take_end(name, end);
  Role role;
  role.field = take_word(name);
  if (role.field != "images" && role.field != "labels") return {};
  role.part = take_word(name);
  if (role.part == "test") role.part = "t10k";
  if (role.part != "train" && role.part != "t10k") return {};
  role.set = name;
  return role;
}

/// The file, or the only file of a folder of that name.
fs::path file_at(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  const FolderEntries entries = list_folder(path);
  return entries.files.size() == 1 && entries.folders.empty() ? path / entries.files[0] : fs::path();
}

bool is_compressed(const fs::path& path) { return path.extension() == ".gz"; }

}  // namespace

std::map<std::string, IdxFiles> find_idx_sets(const fs::path& folder) {
  std::map<std::string, IdxFiles> sets;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return sets;
  const FolderEntries entries = list_folder(folder);
  std::vector<std::string> names = entries.files;
  names.insert(names.end(), entries.folders.begin(), entries.folders.end());
  for (const std::string& name : names) {
    const Role role = role_of(name);
    if (role.field.empty()) continue;
    const fs::path file = file_at(folder / name);
    if (file.empty()) continue;
    IdxFiles& set = sets[role.set];
    const bool training = role.part == "train", images = role.field == "images";
    fs::path& place =
        training ? (images ? set.train_images : set.train_labels) : (images ? set.test_images : set.test_labels);
    if (place.empty() || (is_compressed(place) && !is_compressed(file))) place = file;
  }
  std::erase_if(sets, [](const auto& entry) { return entry.second.train_images.empty(); });
  return sets;
}

}  // namespace bantam
