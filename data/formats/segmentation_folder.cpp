// Images and masks in two folders: a mask is a PNG of its image's size and name whose pixels are class numbers.
//
//     roads/images/a.jpg and roads/masks/a.png; with parts roads/train/images/…, roads/val/images/… or
//     roads/images/train/…, roads/images/val/…
//
// A mask's numbers are those that its pixels store: palette indices, or grey values of one channel.
#include <algorithm>
#include <filesystem>
#include <map>
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

struct MaskOptions {
  std::int64_t channels = 3;
  std::vector<std::string> classes;
  std::optional<std::int32_t> ignored;
};

/// Where the images and the masks of one part are; empty paths: there is no such part.
struct PairFolders {
  fs::path images, masks;
};

std::string without_suffix(const std::string& name) { return fs::path(name).replace_extension().string(); }

/// An image and its mask, relative to their folders.
struct Pair {
  std::string image, mask;
};

/// One part of the set; listed once, when it is first used.
class ImageMaskPairs {
 public:
  explicit ImageMaskPairs(PairFolders folders) : folders_(std::move(folders)) {}

  std::int64_t size() const { return std::ssize(listed()); }
  fs::path image(std::int64_t index) const { return folders_.images / listed()[static_cast<std::size_t>(index)].image; }
  fs::path mask(std::int64_t index) const { return folders_.masks / listed()[static_cast<std::size_t>(index)].mask; }
  const IgnoredFiles& ignored() const {
    (void)listed();
    return ignored_;
  }

 private:
  const std::vector<Pair>& listed() const {
    once_.run([this] { list(); });
    return pairs_;
  }
  void list() const {
    const ImageFiles images = list_image_files(folders_.images);
    if (images.names.empty())
      throw DataError(fmt::format("{}: holds no .jpg, .jpeg or .png", folders_.images.string()));
    std::map<std::string, std::string> masks = list_masks();
    ignored_.add(images.ignored);
    std::map<std::string, std::string> seen;
    for (const std::string& name : images.names) {
      const std::string stem = without_suffix(name);
      if (const auto [other, added] = seen.emplace(stem, name); !added)
        throw DataError(
            fmt::format("{}: '{}' and '{}' would have one mask", folders_.images.string(), other->second, name));
      const auto mask = masks.find(stem);
      if (mask == masks.end())
        throw DataError(fmt::format("{}: has no mask; expected {}.png", (folders_.images / name).string(),
                                    (folders_.masks / stem).string()));
      pairs_.push_back({name, mask->second});
      mask->second.clear();
    }
    for (const auto& [stem, name] : masks)
      if (!name.empty()) ignored_.add((folders_.masks / name).string());
  }
  /// By their names without suffix.
  std::map<std::string, std::string> list_masks() const {
    const ImageFiles found = list_image_files(folders_.masks);
    ignored_.add(found.ignored);
    std::map<std::string, std::string> masks;
    for (const std::string& name : found.names) {
      if (!name.ends_with(".png") && !name.ends_with(".PNG"))
        ignored_.add((folders_.masks / name).string());  // a lossy file has no exact numbers
      else
        masks.emplace(without_suffix(name), name);
    }
    return masks;
  }

  PairFolders folders_;
  mutable Once once_;
  mutable std::vector<Pair> pairs_;
  mutable IgnoredFiles ignored_;
};

class SegmentationFolderReader : public ImageFileReader {
 public:
  SegmentationFolderReader(PairFolders folders, MaskOptions options)
      : pairs_(std::move(folders)), options_(std::move(options)) {}

  DatasetFacts facts() const override {
    DatasetFacts facts{pairs_.size(), {0, 0, options_.channels}, options_.classes};
    facts.targets = {{"labels", {0, 0}, DType::int32, FieldEncoding::mask}};
    facts.ignored_label = options_.ignored;
    return facts;
  }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    read_whole_file(pairs_.image(index), fields[0]);
    read_whole_file(pairs_.mask(index), fields[1]);
  }
  std::string name_of(std::int64_t index) const override {
    return fmt::format("{} (mask {})", pairs_.image(index).string(), pairs_.mask(index).string());
  }
  std::vector<std::string> files_of(std::int64_t index) const override {
    return {pairs_.image(index).string(), pairs_.mask(index).string()};
  }
  void read_targets(std::int64_t, std::span<const std::span<std::byte>>) const override {}
  IgnoredFiles ignored() const override { return pairs_.ignored(); }

 private:
  std::uint64_t stored_bytes(std::int64_t index) const override {
    return file_bytes(pairs_.image(index)) + file_bytes(pairs_.mask(index));
  }

  ImageMaskPairs pairs_;
  MaskOptions options_;
};

/// Finds parts below a set's folder, whichever of the two orders its folders have.
struct PartFinder {
  fs::path path;
  std::string images, masks;

  PairFolders whole() const { return {path / images, path / masks}; }
  /// The part `name`, or the first of `usual` that is there; empty where none is.
  PairFolders part(const std::string& name, std::span<const std::string_view> usual) const {
    if (!name.empty()) return {images_of(name), masks_of(name)};
    for (const fs::path& folder : {path, path / images})
      for (const std::string& found : find_folders(folder, usual))
        if (fs::is_directory(images_of(found))) return {images_of(found), masks_of(found)};
    return {};
  }

 private:
  bool parts_are_outer(const std::string& part) const { return fs::is_directory(path / part / images); }
  fs::path images_of(const std::string& part) const {
    return parts_are_outer(part) ? path / part / images : path / images / part;
  }
  fs::path masks_of(const std::string& part) const {
    return parts_are_outer(part) ? path / part / masks : path / masks / part;
  }
};

/// Names, or a number of classes that are called by their numbers.
std::vector<std::string> read_mask_classes(ConfigMap& data) {
  const ConfigNode node = data.node(
      {"classes", "How many classes there are, or their names, in the order of the masks' numbers: 0 is the first.",
       "2 | [background, road]"});
  if (node.is_list()) return read_class_names(node, 256);
  std::vector<std::string> names;
  for (std::int64_t c = 0, count = node.as_integer({.min = 1, .max = 256}); c < count; ++c)
    names.push_back(fmt::format("{}", c));
  return names;
}

MaskOptions read_mask_options(ConfigMap& data) {
  MaskOptions options;
  options.channels = read_image_channels(data);
  options.classes = read_mask_classes(data);
  if (const auto ignored =
          data.find({"ignore",
                     "Number of the masks' pixels that belong to no class. Say the same to the loss (ignore_index) and "
                     "to metrics (ignore_label).",
                     "255", "none: every number is a class"})) {
    options.ignored = static_cast<std::int32_t>(ignored->as_integer({.min = 0, .max = 65535}));
  }
  return options;
}

}  // namespace

/// `data: {format: segmentation_folder}`: path, images, masks, classes, ignore, channels, train, validation, test,
/// split.
SampleSplits segmentation_folder_format(ConfigMap& data) {
  data.describe(
      "Images and their masks, PNG files of class numbers, by the same names in two folders: path/images/a.jpg and "
      "path/masks/a.png, or path/train/images/…, path/val/images/…, or path/images/train/….");
  const ConfigNode path = data.node({"path", "The folder. Relative to the current folder.", "data/roads"});
  const PartNames names = read_part_names(data, "Folder");
  PartFinder finder{.path = read_folder(path)};
  finder.images = data.text({"images", "Name of the folders of images.", "photos"}, "images");
  finder.masks = data.text({"masks", "Name of the folders of masks.", "annotations"}, "masks");
  const MaskOptions options = read_mask_options(data);
  const auto reader = [&](const PairFolders& folders) -> std::shared_ptr<const SampleReader> {
    if (folders.images.empty()) return nullptr;
    return std::make_shared<SegmentationFolderReader>(folders, options);
  };
  const PairFolders training = finder.part(names.train, kTrainFolders);
  const PairFolders validation = finder.part(names.validation, kValidationFolders);
  const PairFolders test = finder.part(names.test, kTestFolders);
  const bool has_parts = !validation.images.empty() || !test.images.empty();
  if (has_parts && training.images.empty())
    path.fail("has held-out samples, but no folder 'train'; name it by data.train");
  if (has_parts && names.split && !data.self().is_described())
    data.node("split").fail_at_key("nothing is split off where samples are held out already: remove the key");
  return splits_of_parts(reader(training.images.empty() ? finder.whole() : training), reader(validation), reader(test),
                         names);
}

}  // namespace bantam
