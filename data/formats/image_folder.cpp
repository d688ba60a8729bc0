// Class folders of image files, as torchvision's ImageFolder and Keras' image_dataset_from_directory read them:
//
//     photos/train/cat/a.jpg, photos/train/dog/b.png, …, photos/val/cat/c.jpg, …, and photos/test/… where it is there,
//
// or photos/cat/…, photos/dog/… alone, of which a share is held out. A class is a folder's name, its number the name's
// place among the sorted ones (as numbers where all are). Files lie anywhere below their class' folder. Folders that an
// archive put around these, once or twice, are passed through.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/data/files/once.h"
#include "bantam/data/files/table_text.h"
#include "bantam/data/formats/class_names.h"
#include "bantam/data/formats/held_out.h"
#include "bantam/data/formats/image_files.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

/// "a, b and c", shortened.
std::string list_text(std::span<const std::string> names) { return shown(join(names, ", ", " and "), 200); }

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
    return class_folders_[static_cast<std::size_t>(label(index))] / name;
  }
  const IgnoredFiles& ignored() const { return listed().ignored; }
  const std::vector<std::string>& notes() const {
    (void)listed();
    return notes_;
  }

 private:
  void find_classes() const {
    if (training_ != nullptr) classes_ = training_->classes();
    if (!classes_.empty()) return;
    const FolderEntries entries = list_folder(folder_);
    for (const std::string& name : entries.folders)
      if (has_files(folder_ / name))
        classes_.push_back(as_utf8(name));
      else
        empty_.push_back(as_utf8(name));
    if (classes_.empty()) fail_without_classes(entries);
    sort_class_names(classes_);
  }
  [[noreturn]] void fail_without_classes(const FolderEntries& entries) const {
    const auto images = std::ranges::count_if(entries.files, has_image_suffix);
    throw DataError(fmt::format(
        "{}: has no class folders{}; data.path must be a folder of one folder a class, or of train, val and test with "
        "those{}",
        folder_.string(), images > 0 ? fmt::format(", but {} image files", format_count(images)) : "",
        images > 0 ? ". Where a table names their classes, use format: csv with `image` and `label`" : ""));
  }
  static bool has_files(const fs::path& folder) {
    const FolderEntries entries = list_folder(folder);
    return !entries.files.empty() ||
           std::ranges::any_of(entries.folders, [&](const std::string& name) { return has_files(folder / name); });
  }
  const ImageFiles& listed() const {
    listed_.run([this] { list(); });
    return files_;
  }
  void list() const {
    const FolderEntries entries = list_folder(folder_);
    for (const std::string& name : entries.files) add_ignored((folder_ / name).string(), name, files_.ignored);
    for (const std::string& name : entries.system_files) files_.system_files.add((folder_ / name).string());
    if (training_ != nullptr) check_known(entries.folders);
    std::unordered_map<std::string, std::string> folders;  // by their names as text
    for (const std::string& name : entries.folders) folders.emplace(as_utf8(name), name);
    for (const std::string& name : classes()) {
      const auto found = folders.find(name);
      list_class(name, folder_ / (found != folders.end() ? found->second : name));
    }
    if (files_.names.empty()) throw DataError(fmt::format("{}: {}", folder_.string(), no_images_text(files_.ignored)));
    add_notes(entries);
  }
  void list_class(const std::string& name, const fs::path& folder) const {
    first_.push_back(std::ssize(files_.names));
    class_folders_.push_back(folder);
    if (training_ != nullptr && !fs::exists(folder)) return;
    ImageFiles found = list_image_files(folder);
    if (training_ == nullptr && found.names.empty())
      throw DataError(fmt::format("{}: the class '{}' {}", printable_line(folder.string()), printable_line(name),
                                  no_images_text(found.ignored)));
    if (training_ == nullptr) note_nested(name, found.names);
    std::ranges::move(found.names, std::back_inserter(files_.names));
    files_.ignored.add(found.ignored, name);
    files_.system_files.add(found.system_files);
  }
  /// Folders within a class may be classes of their own, one level too deep.
  void note_nested(const std::string& name, const std::vector<std::string>& files) const {
    std::vector<std::string> within;
    for (const std::string& file : files) {
      const std::size_t slash = file.find('/');
      if (slash == std::string::npos) return;
      if (within.empty() || within.back() != file.substr(0, slash)) within.push_back(file.substr(0, slash));
    }
    if (within.size() > 1) nested_.push_back(fmt::format("'{}' ({})", name, list_text(within)));
  }
  void add_notes(const FolderEntries& entries) const {
    const auto loose = std::ranges::count_if(entries.files, has_image_suffix);
    if (loose > 0)
      notes_.push_back(fmt::format("{}: {} image file{} lie{} beside the class folders, and belong{} to no class",
                                   folder_.string(), format_count(loose), loose == 1 ? "" : "s", loose == 1 ? "s" : "",
                                   loose == 1 ? "s" : ""));
    if (const IgnoredFiles& system = files_.system_files; system.count > 0)
      notes_.push_back(fmt::format(
          "{}: {} of systems and programs {} not read, such as {}", folder_.string(),
          system.count == 1 ? "1 file or folder" : fmt::format("{} files and folders", format_count(system.count)),
          system.count == 1 ? "is" : "are", shown(fs::path(system.examples[0]).filename().string())));
    if (training_ != nullptr) return;
    if (!empty_.empty())
      notes_.push_back(fmt::format("{}: the folder{} {} {} empty, and no class{}", folder_.string(),
                                   empty_.size() == 1 ? "" : "s", list_text(empty_), empty_.size() == 1 ? "is" : "are",
                                   empty_.size() == 1 ? "" : "es"));
    if (!nested_.empty())
      notes_.push_back(fmt::format(
          "{}: all images of {} lie in folders within, whose names are not used; where those are the classes, name "
          "their folder by data.path",
          folder_.string(), list_text(nested_)));
    if (classes().size() == 1)
      notes_.push_back(fmt::format(
          "{}: there is one class alone, '{}', and nothing to tell it from: expected two class folders or more",
          folder_.string(), shown(classes()[0])));
  }
  void check_known(const std::vector<std::string>& folders) const {
    const std::unordered_set<std::string> known(classes().begin(), classes().end());
    for (const std::string& name : folders)
      if (!known.contains(as_utf8(name)) && !training_->chosen() && has_files(folder_ / name))
        throw DataError(fmt::format("{}: '{}' is no class of the training samples, which are {}", folder_.string(),
                                    shown(name), shown(join(classes(), ", ", " and "), 400)));
  }
  bool chosen() const { return chosen_; }

  fs::path folder_;
  mutable std::vector<std::string> classes_;  // UTF-8, whatever their folders' names are
  std::shared_ptr<const ClassFolders> training_;
  bool chosen_ = !classes_.empty();  // other folders are not read
  mutable Once classes_found_, listed_;
  mutable ImageFiles files_;                     // names relative to their class' folder, class after class
  mutable std::vector<std::int64_t> first_;      // of each class
  mutable std::vector<fs::path> class_folders_;  // of each class
  mutable std::vector<std::string> empty_, nested_, notes_;
};

class ImageFolderReader : public ImageFileReader {
 public:
  /// `notes`: of the whole set, beside those of the folders.
  ImageFolderReader(std::shared_ptr<const ClassFolders> folders, std::int64_t channels,
                    std::vector<std::string> notes = {})
      : folders_(std::move(folders)), channels_(channels), notes_(std::move(notes)) {}

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
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes = notes_;
    notes.insert(notes.end(), folders_->notes().begin(), folders_->notes().end());
    return notes;
  }

 private:
  std::uint64_t stored_bytes(std::int64_t index) const override { return file_bytes(folders_->path(index)); }

  std::shared_ptr<const ClassFolders> folders_;
  std::int64_t channels_;
  std::vector<std::string> notes_;
};

/// Folders of the parts; empty ones are not there.
struct PartFolders {
  fs::path train, validation, test;
  std::vector<std::string> notes;
};

/// The folder of the training samples, by its name; empty: there is none. A folder of images called "train" among
/// others that are called as no part is a class.
fs::path find_training(const fs::path& path) {
  const auto has_class_beside = [&] {
    std::unordered_set<std::string> parts;
    const std::array<std::span<const std::string_view>, 3> usual_names = {kTrainFolders, kValidationFolders,
                                                                          kTestFolders};
    for (const std::span<const std::string_view> usual : usual_names)
      for (const auto& names : {find_folders(path, usual), find_likely_folders(path, usual)})
        parts.insert(names.begin(), names.end());
    return std::ranges::any_of(list_folder(path).folders, [&](const std::string& name) {
      return !parts.contains(name) && std::ranges::any_of(list_folder(path / name).files, has_image_suffix);
    });
  };
  for (const std::string& name : find_folders(path, kTrainFolders))
    if (has_images_in_folders_alone(path / name) || !has_class_beside()) return path / name;
  for (const std::string& name : find_likely_folders(path, kTrainFolders))
    if (has_images_in_folders_alone(path / name)) return path / name;
  return {};
}

/// A part that an archive wrapped in a folder, as in seg_train/seg_train/CLASS.
fs::path unwrapped_part(const fs::path& part) { return unwrapped_folder(part, has_images_in_folders_alone); }

/// Whether a folder is called as one of any images.
bool says_nothing(std::string_view name) {
  constexpr std::array<std::string_view, 10> kNames = {"images", "image",      "imgs",      "img",    "data",
                                                       "all",    "unlabelled", "unlabeled", "photos", "unknown"};
  return std::ranges::find(kNames, name) != kNames.end();
}

/// Held-out samples by the folder's usual names; empty where there is none, or none with classes, which a note says.
fs::path find_held_out(const fs::path& path, std::span<const std::string_view> usual,
                       const std::vector<std::string>& classes, std::vector<std::string>& notes) {
  std::vector<std::string> names = find_folders(path, usual);
  std::ranges::copy(find_likely_folders(path, usual), std::back_inserter(names));
  for (const std::string& name : names) {
    const fs::path folder = unwrapped_part(path / name);
    const FolderEntries entries = list_folder(folder);
    const bool has_classes = std::ranges::any_of(entries.folders, [&](const std::string& one) {
      return std::ranges::find(classes, as_utf8(one)) != classes.end();
    });
    const bool has_images = std::ranges::any_of(entries.files, has_image_suffix);
    // One folder of another name may hold all images that are to be predicted, as in test/unknown; others are classes.
    const bool is_unnamed = entries.folders.size() == 1 &&
                            (std::ranges::equal(usual, kTestFolders) || says_nothing(entries.folders.front()));
    if (has_classes || (!has_images && !is_unnamed && has_image_files(folder))) return folder;
    notes.push_back(has_image_files(folder)
                        ? fmt::format("{}: its images are in no class folders, so that nothing can be evaluated on "
                                      "them: it is left out; `bantam predict RUN {}` answers for them",
                                      folder.string(), folder.string())
                        : fmt::format("{}: holds no image, and is left out", folder.string()));
  }
  return {};
}

/// Folders that hold images and are read as no part.
void note_others(const fs::path& path, const PartFolders& found, std::vector<std::string>& notes) {
  std::vector<std::string> others;
  const auto is_within = [](const fs::path& part, const fs::path& folder) {
    return !part.empty() && (part.string() + "/").starts_with(folder.string() + "/");
  };
  for (const std::string& name : list_folder(path).folders) {
    const fs::path folder = path / name;
    const bool is_told = std::ranges::any_of(notes, [&](const std::string& note) {
      return note.starts_with(folder.string() + "/") || note.starts_with(folder.string() + ":");
    });
    if (is_told || is_within(found.train, folder) || is_within(found.validation, folder) ||
        is_within(found.test, folder) || !has_image_files(folder))
      continue;
    others.push_back(name);
  }
  if (!others.empty())
    notes.push_back(fmt::format("{}: the folder{} {} {} not read beside that of the training samples, {}",
                                path.string(), others.size() == 1 ? "" : "s", list_text(others),
                                others.size() == 1 ? "is" : "are", found.train.string()));
}

/// The set's folder, where archives wrapped it.
fs::path unwrapped_set(const fs::path& path, const PartNames& names) {
  const auto has_part = [&](const fs::path& folder) {
    return names.train.empty() ? !find_training(folder).empty() : fs::is_directory(folder / names.train);
  };
  return unwrapped_folder(path, [&](const fs::path& inner) {
    return !has_part(inner.parent_path()) && (has_part(inner) || has_images_in_folders_alone(inner));
  });
}

/// `named`: a part that the configuration names, within the set's folder.
fs::path named_part(const fs::path& path, const std::string& named) {
  const fs::path folder = path / named;
  return fs::is_directory(folder) ? unwrapped_part(folder) : folder;
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
      "Folders of image files (JPEG, PNG, WebP, GIF, BMP, TIFF, PNM), one a class: path/train/CLASS/…, "
      "path/val/CLASS/… and path/test/CLASS/…, or "
      "path/CLASS/… alone, of which a share is held out. Files with other suffixes are ignored and counted.");
  const ConfigNode path = data.node({"path", "The folder.", "data/photos"});
  const PartNames names = read_part_names(data, "Folder within `path`");
  const std::int64_t channels = read_image_channels(data);
  std::vector<std::string> classes;
  if (const auto chosen =
          data.find({"classes", "Class folders to be read, in the order of their numbers. Other folders are not.",
                     "[cat, dog]", "all, sorted by name"}))
    classes = read_class_names(*chosen);
  const fs::path given = read_folder(path);
  if (path.is_described()) {
    auto none = std::make_shared<ImageFolderReader>(
        std::make_shared<const ClassFolders>(given, std::move(classes), nullptr), channels);
    return splits_of_parts(none, nullptr, nullptr, names);
  }
  const fs::path folder = unwrapped_set(given, names);
  PartFolders parts;
  parts.train = names.train.empty() ? find_training(folder) : named_part(folder, names.train);
  const bool has_names = !names.validation.empty() || !names.test.empty();
  const bool is_whole = parts.train.empty() && !has_names;  // folders of the other names are classes then
  if (parts.train.empty() && has_names)
    path.fail("has no folder 'train'; name that of the training samples by data.train");
  const fs::path found = is_whole ? folder : unwrapped_part(parts.train);
  const bool is_wrapped = folder != given || (!is_whole && found != parts.train);
  parts.train = found;
  if (is_whole && classes.empty()) check_classes(path, folder);
  const auto training = std::make_shared<const ClassFolders>(parts.train, std::move(classes), nullptr);
  if (!is_whole) {
    const auto held_out = [&](const std::string& name, std::span<const std::string_view> usual) {
      if (!name.empty()) return named_part(folder, name);
      return find_held_out(folder, usual, training->classes(), parts.notes);
    };
    parts.validation = held_out(names.validation, kValidationFolders);
    parts.test = held_out(names.test, kTestFolders);
    if (names.train.empty() && !has_names) note_others(folder, parts, parts.notes);
  }
  if (is_wrapped)
    parts.notes.insert(parts.notes.begin(),
                       fmt::format("{}: the class folders are found in {}", given.string(), parts.train.string()));
  if (names.split && (!parts.validation.empty() || !parts.test.empty()))
    data.node("split").fail_at_key(
        fmt::format("nothing is split off where samples are held out already, in {}: "
                    "remove the key",
                    (parts.validation.empty() ? parts.test : parts.validation).string()));
  const auto part = [&](const fs::path& folder) -> std::shared_ptr<const SampleReader> {
    if (folder.empty()) return nullptr;
    return std::make_shared<ImageFolderReader>(
        std::make_shared<const ClassFolders>(folder, std::vector<std::string>{}, training), channels);
  };
  return splits_of_parts(std::make_shared<ImageFolderReader>(training, channels, parts.notes), part(parts.validation),
                         part(parts.test), names);
}

}  // namespace bantam
