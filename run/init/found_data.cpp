// One function a format, tried in order.
#include "bantam/run/init/found_data.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/data/files/file_bytes.h"
#include "bantam/data/formats/idx_files.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/run/init/found_arrays.h"
#include "bantam/run/init/found_files.h"
#include "bantam/run/init/found_masks.h"
#include "bantam/run/init/found_table.h"
#include "bantam/run/init/unsupported_data.h"

namespace bantam::run {
namespace {

namespace fs = std::filesystem;

/// Returns the greatest label of both parts.
int greatest_byte(const IdxFiles& files) {
  constexpr std::int64_t kHeader = 8, kMostLabels = 1 << 24;
  int greatest = 0;
  for (const fs::path& path : {files.train_labels, files.test_labels}) {
    const std::unique_ptr<FileBytes> file = open_file_bytes(path);
    file->fetch(kMostLabels);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(std::min(file->size(), kMostLabels)));
    file->read(0, bytes);
    for (std::size_t i = kHeader; i < bytes.size(); ++i) greatest = std::max<int>(greatest, bytes[i]);
  }
  return greatest;
}

std::optional<FoundData> find_idx(const fs::path& at) {
  const std::map<std::string, IdxFiles> sets = find_idx_sets(at);
  if (sets.empty()) return std::nullopt;
  const auto& [name, files] = sets.contains("") ? *sets.find("") : *sets.begin();
  FoundData found{.format = "idx", .keys = {path_key(at)}};
  if (sets.size() > 1) found.keys.push_back("set: " + yaml_text(name));
  for (const fs::path& file : {files.train_labels, files.test_images, files.test_labels})
    if (file.empty())
      throw DataError(
          fmt::format("{}: has {}, but not all four files of a set: images and labels of training (train-…) "
                      "and test samples (t10k-… or test-…)",
                      at.string(), files.train_images.filename().string()));
  if (const int greatest = greatest_byte(files); greatest > 9) {
    std::vector<std::string> classes;
    for (int c = 0; c <= greatest; ++c) classes.push_back(fmt::format("'{}'", c));
    found.keys.push_back(fmt::format("classes: [{}]", fmt::join(classes, ", ")));
  }
  return found;
}

std::optional<FoundData> find_cifar(const fs::path& at) {
  const auto begins = [](const std::string& name, std::string_view with) { return lower_case(name).starts_with(with); };
  for (const fs::path& file : files_at(at)) {
    const std::string name = file.filename().string();
    if (begins(name, "data_batch_1") || begins(name, "cifar-10-")) return FoundData{"cifar10", {path_key(at)}};
    if (begins(name, "cifar-100-")) return FoundData{"cifar100", {path_key(at)}};
  }
  if (!is_folder(at)) return std::nullopt;
  for (const char* name : {"train.bin", "train.bin.xz", "train.bin.gz", "train"})
    if (is_file(at / name) && is_file(at / (std::string(name) == "train" ? "meta" : name)))
      return FoundData{"cifar100", {path_key(at)}};
  return std::nullopt;
}

std::optional<FoundData> find_classes(const fs::path& at) {
  if (!is_folder(at)) return std::nullopt;
  fs::path training = at;
  for (const std::string& part : find_folders(at, kTrainFolders)) training = at / part;
  const std::vector<std::string> classes = list_folder(training).folders;
  const auto is_class = [&](const std::string& name) { return has_images(training / name); };
  const auto count = std::ranges::count_if(classes, is_class);
  if (count < 2) return std::nullopt;
  // Beside folders without images: sets and their copies are no classes, and neither are train2017/ and val2017/ beside
  // annotations/.
  const auto has_parts = [&](const std::string& name) { return !find_folders(training / name, kTrainFolders).empty(); };
  if (count < std::ssize(classes) && std::ranges::any_of(classes, has_parts)) return std::nullopt;
  if (count < std::ssize(classes))
    if (const std::string named = name_labels_of_tools(at); !named.empty()) throw DataError(named);
  return FoundData{"image_folder", {path_key(at)}};
}

/// The one folder of a folder that has no other, and no image files.
fs::path inner_folder(const fs::path& at) {
  if (!is_folder(at)) return {};
  const FolderEntries entries = list_folder(at);
  const bool has_own = std::ranges::any_of(entries.files, has_image_suffix);
  return entries.folders.size() == 1 && !has_own ? at / entries.folders.front() : fs::path();
}

}  // namespace

std::string yaml_text(std::string_view text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
  };
  const bool is_word = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '/' ||
                                         text.starts_with("./") || text.starts_with("../"));
  static const std::set<std::string, std::less<>> words = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
  if (is_word && std::ranges::all_of(text, is_plain) && !words.contains(lower_case(text))) return std::string(text);
  // YAML has escapes between double quotes alone; they are JSON's.
  if (is_utf8(text) && (printable(text) != text || text.find_first_of("\n\t") != std::string_view::npos))
    return json_text(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

namespace {

/// The data of a folder, or, where that has one folder alone, of this one. `fault`: the first that was found in data
/// that are none.
std::optional<FoundData> find_here(const fs::path& at, std::string& fault) {
  constexpr int kMostFolders = 4;
  std::optional<FoundData> found;
  fs::path here = at;
  using Find = std::optional<FoundData> (*)(const fs::path&);
  const auto finds = [&](std::initializer_list<Find> ways) {
    return std::ranges::any_of(ways, [&](Find find) {
      try {
        found = find(here);
        // Beside class folders a table of results, or one of the same classes, says less than the folders do.
        if (found && found->repeats_folders)
          if (std::optional<FoundData> folders = find_classes(here)) found = std::move(folders);
      } catch (const DataError& error) {
        if (fault.empty()) fault = error.what();
      }
      return found.has_value();
    });
  };
  for (int depth = 0; depth <= kMostFolders && !here.empty(); ++depth, here = inner_folder(here)) {
    if (finds({find_idx, find_cifar, find_masks, find_npz, find_npy, find_table})) return found;
    refuse_unpaired_masks(here);
    if (finds({find_classes, find_part_tables})) return found;
  }
  return std::nullopt;
}

/// Looks within a project's folder, for the one folder of data beside scripts and checkpoints.
std::optional<FoundData> find_in_project(const fs::path& at) {
  if (!is_folder(at)) return std::nullopt;
  std::optional<FoundData> found;
  std::vector<std::string> folders;
  for (const std::string& folder : list_folder(at).folders) {
    std::string fault;
    try {
      if (std::optional<FoundData> inner = find_here(at / folder, fault)) {
        found = std::move(inner);
        folders.push_back(folder);
      }
    } catch (const DataError&) {  // nothing that could be used
    }
  }
  if (folders.size() > 1)
    throw DataError(fmt::format("{}: several folders hold a data set: {}; name one of them", at.string(),
                                shown(join(folders, ", ", " and "), 200)));
  return found;
}

}  // namespace

FoundData find_data(const fs::path& at) {
  std::error_code error;
  if (!fs::exists(at, error))
    throw DataError(fmt::format("{}: {}", at.string(), error ? error.message() : "there is no such file or folder"));
  std::string fault;
  if (std::optional<FoundData> found = find_here(at, fault)) return *std::move(found);
  if (const std::string named = name_labels_of_tools(at); !named.empty()) throw DataError(named);
  if (std::optional<FoundData> found = find_in_project(at)) return *std::move(found);
  if (const std::string named = name_unread_file(at); !named.empty()) throw DataError(named);
  const std::string alone = name_images_alone(at);
  if (!fault.empty()) throw DataError(alone.empty() ? fault : fault + "\n  " + alone);
  if (!alone.empty()) throw DataError(alone);
  throw DataError(fmt::format(
      "{}: no data set was found: expected two or more class folders of .jpg and .png files (or train/ and val/ with "
      "those), images/ and masks/, a .csv or .tsv file, .npz or .npy arrays of images and labels, MNIST's idx files, "
      "or CIFAR's files",
      at.string()));
}

}  // namespace bantam::run
