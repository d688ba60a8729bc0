// One list of the image files below the root, by their names without suffix.
#include "bantam/data/formats/csv_images.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/formats/image_files.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string_view folder_part(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

/// Cuts folder and suffix off a path. Only an image's suffix is one: names such as "scan.2" have none.
std::string_view stem_of(std::string_view path) {
  const std::string_view name = last_part(path);
  return has_image_suffix(name) ? name.substr(0, name.rfind('.')) : name;
}

/// The last two parts of a path.
std::string_view tail_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return path;
  const std::size_t before = path.rfind('/', slash - 1);
  return before == std::string_view::npos ? path : path.substr(before + 1);
}

/// Digits alone without the zeros before them: a program that reads 00017 as a number writes 17.
std::string_view without_zeros(std::string_view stem) {
  if (stem.find_first_not_of("0123456789") != std::string_view::npos) return stem;
  const std::size_t first = stem.find_first_not_of('0');
  return first == std::string_view::npos ? stem.substr(0, 1) : stem.substr(first);
}

/// Parts of two paths that are equal, counted from the end, but for the last ones.
std::size_t common_folders(std::string_view a, std::string_view b) {
  std::size_t common = 0;
  for (a = folder_part(a), b = folder_part(b); !a.empty() && !b.empty(); a = folder_part(a), b = folder_part(b)) {
    if (last_part(a) != last_part(b)) break;
    ++common;
  }
  return common;
}

/// The image files below a folder.
class ImageIndex {
 public:
  ImageIndex(const fs::path& folder, std::string before) {
    std::error_code error;
    if (!fs::is_directory(folder, error)) return;
    ImageFiles found;
    try {
      found = list_image_files(folder, kMostFolders);
    } catch (const DataError&) {  // whoever reads a file reports it
      return;
    }
    files_ = std::move(found.names);
    for (std::string& file : files_) file.insert(0, before);
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const std::string_view stem = stem_of(files_[i]), plain = without_zeros(stem);
      by_stem_[stem].push_back(i);
      if (plain != stem) by_stem_[plain].push_back(i);
      by_tail_[tail_of(files_[i])].push_back(i);
    }
  }

  struct Found {
    const std::string* file = nullptr;  // null: there is none
    bool is_one_of_several = false;     // that the name suits as well
  };
  /// The file that a name stands for. `likely`: the folder of most files.
  Found find(std::string_view name, std::string_view likely) const {
    Found best;
    std::array<std::size_t, 3> best_score = {};
    const bool has_suffix = has_image_suffix(name);
    for (const std::size_t i : candidates(name)) {
      const std::string& file = files_[i];
      const std::array<std::size_t, 3> score = {common_folders(file, name),
                                                has_suffix && last_part(file) == last_part(name) ? 1u : 0u,
                                                folder_part(file) == likely ? 1u : 0u};
      if (best.file != nullptr && score[0] == best_score[0] && score[1] == best_score[1]) best.is_one_of_several = true;
      if (best.file != nullptr && score <= best_score) continue;
      best.is_one_of_several = best.is_one_of_several && score[0] == best_score[0] && score[1] == best_score[1];
      best.file = &file;
      best_score = score;
    }
    return best;
  }
  /// The folder in which the most of the names are, of several the first that is called as the table or as images.
  std::string likely_folder(std::span<const std::string> names, const std::string& table) const {
    std::map<std::string_view, std::size_t> hits;
    for (const std::string& name : names)
      if (const auto found = by_stem_.find(stem_of(name)); found != by_stem_.end())
        for (const std::size_t i : found->second) ++hits[folder_part(files_[i])];
    std::string_view best;
    std::pair<std::size_t, int> most = {0, -1};
    for (const auto& [folder, count] : hits) {
      const int kinship = folder_kinship(folder, table);
      if (std::pair(count, kinship) <= most) continue;
      most = {count, kinship};
      best = folder;
    }
    return std::string(best);
  }
  bool is_empty() const { return files_.empty(); }

 private:
  /// Files that agree with the name in their folder and name; else those in whose name alone, or but for its suffix.
  std::span<const std::size_t> candidates(std::string_view name) const {
    if (name.find('/') != std::string_view::npos)
      if (const auto found = by_tail_.find(tail_of(name)); found != by_tail_.end()) return found->second;
    for (const std::string_view stem : {stem_of(name), last_part(name)})
      if (const auto found = by_stem_.find(stem); found != by_stem_.end()) return found->second;
    return {};
  }

  static constexpr std::size_t kMostFolders = 100'000;

  std::vector<std::string> files_;  // relative to the root
  std::unordered_map<std::string_view, std::vector<std::size_t>> by_stem_, by_tail_;
};

/// Up to 64 names, evenly spread.
std::vector<std::string> sample_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 64;
  const std::size_t count = std::min(names.size(), kMost);
  std::vector<std::string> sample;
  for (std::size_t i = 0; i < count; ++i) sample.push_back(names[i * names.size() / count]);
  return sample;
}

bool are_there(const fs::path& root, const std::vector<std::string>& names) {
  return std::ranges::all_of(names, [&](const std::string& name) {
    std::error_code error;
    return fs::is_regular_file(root / name, error);
  });
}

/// As this system writes paths: Windows' backslashes are separators, and a disk's letter leads to no other root.
void use_slashes(std::string& name) {
  if (name.find('\\') == std::string::npos) return;
  std::ranges::replace(name, '\\', '/');
  if (name.size() > 2 && name[1] == ':' && name[2] == '/') name.erase(0, 3);
}

struct Resolved {
  std::size_t found = 0, missing = 0, ambiguous = 0;
  std::set<std::string> folders, suffixes;  // of files that were found otherwise than by their name alone
  std::string first_missing;
};

Resolved resolve(const ImageIndex& index, const std::string& likely, std::vector<std::string>& names) {
  constexpr std::size_t kMostFolders = 1000;
  Resolved resolved;
  for (std::string& name : names) {
    const auto [file, is_one_of_several] = index.find(name, likely);
    if (file == nullptr) {
      if (resolved.missing++ == 0) resolved.first_missing = name;
      continue;
    }
    ++resolved.found;
    resolved.ambiguous += is_one_of_several ? 1 : 0;
    if (last_part(*file) != last_part(name)) resolved.suffixes.emplace(file->substr(file->rfind('.')));
    if (folder_part(*file) != folder_part(name) && resolved.folders.size() < kMostFolders)
      resolved.folders.emplace(folder_part(*file));
    name = *file;
  }
  return resolved;
}

std::string list_of(const std::set<std::string>& texts) {
  return shown(join(std::vector<std::string>(texts.begin(), texts.end()), ", ", " and "), 200);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

bool is_test_table(std::string_view table) {
  const std::string name = lower_case(table);
  return name.find("test") != std::string::npos || name.find("submission") != std::string::npos;
}

int folder_kinship(std::string_view folder, std::string_view table) {
  const std::string where = lower_case(folder), name = lower_case(table);
  const auto both_have = [&](std::string_view word) {
    return where.find(word) != std::string::npos && name.find(word) != std::string::npos;
  };
  const auto folder_has = [&](std::string_view word) { return where.find(word) != std::string::npos; };
  if (!name.empty() && where.find(name) != std::string::npos) return 5;
  if (both_have("train") || both_have("val") || both_have("test")) return 4;
  if (folder_has("test")) return is_test_table(table) ? 4 : 0;
  return folder_has("train") ? 3 : folder_has("image") ? 2 : 1;
}

std::vector<std::string> find_csv_images(const CsvImageNames& where, std::vector<std::string>& names) {
  std::vector<std::string> notes;
  const fs::path root = where.root.empty() ? where.table.parent_path() : where.root;
  if (!where.suffix.empty())
    for (std::string& name : names)
      if (!name.ends_with(where.suffix)) name += where.suffix;
  if (names.empty() || are_there(root, sample_of(names))) return notes;
  for (std::string& name : names) use_slashes(name);
  const std::vector<std::string> sample = sample_of(names);
  if (are_there(root, sample)) {
    notes.push_back(fmt::format("{}: backslashes in paths of images are read as /", where.table.string()));
    return notes;
  }
  const fs::path here = root.empty() ? fs::path(".") : root;
  const std::string table = where.table.stem().string();
  ImageIndex index(here, "");
  std::string likely = index.likely_folder(sample, table);
  if (index.is_empty() && where.root.empty()) {
    index = ImageIndex(here / "..", "../");
    likely = index.likely_folder(sample, table);
  }
  const auto total = static_cast<std::int64_t>(names.size());
  const Resolved resolved = resolve(index, likely, names);
  if (resolved.found > 0 && (!resolved.folders.empty() || !resolved.suffixes.empty())) {
    std::set<std::string> places;
    for (const std::string& folder : resolved.folders) places.insert((here / folder).lexically_normal().string());
    std::string how;
    if (!places.empty()) how += fmt::format(" in {}", list_of(places));
    if (!resolved.suffixes.empty()) how += fmt::format(" with the suffix {}", list_of(resolved.suffixes));
    if (resolved.ambiguous > 0)
      how += fmt::format(
          "; for {} of them there are files of that name in other folders, too: `data.root: FOLDER` says which are "
          "meant",
          format_count(static_cast<std::int64_t>(resolved.ambiguous)));
    notes.push_back(fmt::format("{}: {} of {} images are found{}", where.table.string(),
                                format_count(static_cast<std::int64_t>(resolved.found)), format_count(total), how));
  }
  if (resolved.missing > 0)
    notes.push_back(fmt::format(
        "{}: {} of {} images are not there, such as {}: neither below {} nor by another suffix; `data.root: FOLDER` "
        "names the folder of the images, `data.suffix: .jpg` their suffix, and `on_error: skip` trains without them",
        where.table.string(), format_count(static_cast<std::int64_t>(resolved.missing)), format_count(total),
        shown(resolved.first_missing), here.string()));
  return notes;
}

}  // namespace bantam
