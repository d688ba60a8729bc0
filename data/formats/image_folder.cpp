// Class folders of JPEG and PNG files, as torchvision's ImageFolder and Keras' image_dataset_from_directory read them:
//
//     photos/train/cat/a.jpg, photos/train/dog/b.png, …, photos/val/cat/c.jpg, …, and photos/test/… where it is there,
//
// or photos/cat/…, photos/dog/… alone, of which a share is held out. A class is a folder's name, its number the name's
// place among the sorted ones. Files lie anywhere below their class' folder.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/files/once.h"
#include "bantam/data/formats/class_names.h"
#include "bantam/data/formats/held_out.h"
#include "bantam/data/formats/image_files.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

/// One part of the set; listed once, when it is first used.
class ClassFolders {
 public:
  /// Classes are those of `training`, or, where that is null, `classes`, or, where there are none, found.
  ClassFolders(fs::path folder, std::vector<std::string> classes, std::shared_ptr<const ClassFolders> training)
      : folder_(std::move(folder)), classes_(std::move(classes)), training_(std::move(training)) {}

  const std::vector<std::string>& classes() const {
    classes_found_.run([this] { find_classes(); });
    return classes_;
  }
  std::int64_t size() const { return std::ssize(listed().names); }
  std::int32_t label(std::int64_t index) const {
    (void)listed();
    const auto after = std::ranges::upper_bound(first_, index);
    return static_cast<std::int32_t>(after - first_.begin() - 1);
  }
  fs::path path(std::int64_t index) const {
    const std::string& name = listed().names[static_cast<std::size_t>(index)];
    return folder_ / classes()[static_cast<std::size_t>(label(index))] / name;
  }
  const IgnoredFiles& ignored() const { return listed().ignored; }

 private:
  void find_classes() const {
    if (training_ != nullptr) classes_ = training_->classes();
    if (!classes_.empty()) return;
    classes_ = list_folder(folder_).folders;
    if (classes_.empty())
      throw DataError(fmt::format(
          "{}: has no class folders; data.path must be a folder of one folder a class, or of train, val and test with "
          "those",
          folder_.string()));
  }
  const ImageFiles& listed() const {
    listed_.run([this] { list(); });
    return files_;
  }
  void list() const {
    const FolderEntries entries = list_folder(folder_);
    for (const std::string& name : entries.files) files_.ignored.add((folder_ / name).string());
    if (training_ != nullptr) check_known(entries.folders);
    for (const std::string& name : classes()) list_class(name);
    if (files_.names.empty()) throw DataError(fmt::format("{}: holds no .jpg, .jpeg or .png", folder_.string()));
  }
  void list_class(const std::string& name) const {
    first_.push_back(std::ssize(files_.names));
    const fs::path folder = folder_ / name;
    if (training_ != nullptr && !fs::exists(folder)) return;
    ImageFiles found = list_image_files(folder);
    if (training_ == nullptr && found.names.empty())
      throw DataError(fmt::format("{}: the class '{}' has no .jpg, .jpeg or .png", folder.string(), name));
    std::ranges::move(found.names, std::back_inserter(files_.names));
    files_.ignored.add(found.ignored);
  }
  void check_known(const std::vector<std::string>& folders) const {
    for (const std::string& name : folders)
      if (std::ranges::find(classes(), name) == classes().end() && !training_->chosen())
        throw DataError(fmt::format("{}: '{}' is no class of the training samples, which are {}", folder_.string(),
                                    name, join(classes(), ", ", " and ")));
  }
  bool chosen() const { return chosen_; }

  fs::path folder_;
  mutable std::vector<std::string> classes_;
  std::shared_ptr<const ClassFolders> training_;
  bool chosen_ = !classes_.empty();  // other folders are not read
  mutable Once classes_found_, listed_;
  mutable ImageFiles files_;                 // names relative to their class' folder, class after class
  mutable std::vector<std::int64_t> first_;  // of each class
};

class ImageFolderReader : public ImageFileReader {
 public:
  ImageFolderReader(std::shared_ptr<const ClassFolders> folders, std::int64_t channels)
      : folders_(std::move(folders)), channels_(channels) {}

  DatasetFacts facts() const override { return {folders_->size(), {0, 0, channels_}, folders_->classes()}; }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    read_whole_file(folders_->path(index), fields[0]);
    fields[1].resize(sizeof(std::int32_t));
    const std::array<std::span<std::byte>, 1> targets = {fields[1]};
    read_targets(index, targets);
  }
  std::string name_of(std::int64_t index) const override { return folders_->path(index).string(); }
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override {
    const std::int32_t label = folders_->label(index);
    std::memcpy(targets[0].data(), &label, sizeof label);
  }
  bool sorted_by_class() const override { return true; }
  IgnoredFiles ignored() const override { return folders_->ignored(); }

 private:
  std::uint64_t stored_bytes(std::int64_t index) const override { return file_bytes(folders_->path(index)); }

  std::shared_ptr<const ClassFolders> folders_;
  std::int64_t channels_;
};

/// Folders of the parts; empty ones are not there.
struct PartFolders {
  fs::path train, validation, test;
};

/// `path` / name, or the first of `usual` that is a folder there.
fs::path part_folder(const fs::path& path, const std::string& name, std::span<const std::string_view> usual) {
  if (!name.empty()) return path / name;
  const std::vector<std::string> found = find_folders(path, usual);
  return found.empty() ? fs::path() : path / found[0];
}

PartFolders find_parts(const fs::path& path, const PartNames& names) {
  PartFolders found{part_folder(path, names.train, kTrainFolders),
                    part_folder(path, names.validation, kValidationFolders),
                    part_folder(path, names.test, kTestFolders)};
  // Without training samples of their own, folders of those names are classes.
  if (found.train.empty() && names.validation.empty() && names.test.empty()) return {.train = path};
  return found;
}

/// Folders that have no images of their own, but all the same two or more folders: rather parts than classes.
struct LikelyParts {
  std::vector<std::string> names, classes;
};

LikelyParts likely_parts(const fs::path& path) {
  LikelyParts found;
  for (const std::string& name : list_folder(path).folders) {
    const FolderEntries entries = list_folder(path / name);
    if (entries.folders.empty() || std::ranges::any_of(entries.files, has_image_suffix)) continue;
    if (!found.names.empty() && entries.folders != found.classes) return {};
    found.names.push_back(name);
    found.classes = entries.folders;
  }
  if (found.names.size() < 2 || found.classes.size() < 2) return {};
  return found;
}

/// Folders within `path` are classes, unless they look like parts.
void check_classes(const ConfigNode& path, const fs::path& folder) {
  const LikelyParts parts = likely_parts(folder);
  if (parts.names.empty()) return;
  path.fail(fmt::format(
      "the folders {} look like parts of the set, not like classes: each has the folders {}. Name the parts by "
      "data.train and data.validation, or, where they are classes, list them in data.classes",
      shown(join(parts.names, ", ", " and "), 200), shown(join(parts.classes, ", ", " and "), 200)));
}

}  // namespace

/// `data: {format: image_folder}`: path, train, validation, test, split, channels, classes.
SampleSplits image_folder_format(ConfigMap& data) {
  data.describe(
      "Folders of JPEG and PNG files, one a class: path/train/CLASS/…, path/val/CLASS/… and path/test/CLASS/…, or "
      "path/CLASS/… alone, of which a share is held out. Files with other suffixes are ignored and counted.");
  const ConfigNode path = data.node({"path", "The folder. Relative to the current folder.", "data/photos"});
  const PartNames names = read_part_names(data, "Folder within `path`");
  const std::int64_t channels = read_image_channels(data);
  std::vector<std::string> classes;
  if (const auto chosen =
          data.find({"classes", "Class folders to be read, in the order of their numbers. Other folders are not.",
                     "[cat, dog]", "all, sorted by name"}))
    classes = read_class_names(*chosen);
  const fs::path folder = read_folder(path);
  const PartFolders parts = find_parts(folder, names);
  if (parts.train.empty()) path.fail("has no folder 'train'; name that of the training samples by data.train");
  if (parts.train == folder && classes.empty() && !path.is_described()) check_classes(path, folder);
  if (names.split && !data.self().is_described() && (!parts.validation.empty() || !parts.test.empty()))
    data.node("split").fail_at_key(
        fmt::format("nothing is split off where samples are held out already, in {}: "
                    "remove the key",
                    (parts.validation.empty() ? parts.test : parts.validation).string()));
  const auto training = std::make_shared<const ClassFolders>(parts.train, std::move(classes), nullptr);
  const auto part = [&](const fs::path& folder) -> std::shared_ptr<const SampleReader> {
    if (folder.empty()) return nullptr;
    return std::make_shared<ImageFolderReader>(
        std::make_shared<const ClassFolders>(folder, std::vector<std::string>{}, training), channels);
  };
  return splits_of_parts(std::make_shared<ImageFolderReader>(training, channels), part(parts.validation),
                         part(parts.test), names);
}

}  // namespace bantam
