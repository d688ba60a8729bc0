// Images and their masks: files whose pixels are class numbers, or values that stand for classes.
//
//     roads/images/a.jpg and roads/masks/a.png; with parts roads/train/images/…, roads/val/images/… or
//     roads/images/train/…, roads/images/val/…; or in one folder: roads/train/a.jpg and roads/train/a_mask.png
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/data/files/once.h"
#include "bantam/data/formats/held_out.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/data/formats/mask_names.h"
#include "bantam/data/formats/mask_values.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

struct MaskOptions {
  std::int64_t channels = 3;
  std::optional<MaskNames> names;  ///< none: they are found
  bool skips_unmasked = false;     ///< images without a mask are left out; else they are an error
  std::shared_ptr<const MaskReading> reading;
};

/// Where the images and the masks of one part are; empty paths: there is no such part.
struct PairFolders {
  fs::path images, masks;
  fs::path list = {};  ///< a file of the images' names; empty: all of the folder
  bool are_one() const { return images == masks; }
};

std::string without_suffix(const std::string& name) { return fs::path(name).replace_extension().string(); }

bool is_jpeg(const std::string& name) {
  std::string suffix = fs::path(name).extension().string();
  std::ranges::transform(suffix, suffix.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return suffix == ".jpg" || suffix == ".jpeg" || suffix == ".jfif" || suffix == ".jpe";
}

/// A list of a part's images, as Pascal VOC's ImageSets/Segmentation/train.txt: a name a line, with or without folder
/// and suffix, and perhaps the mask's after it.
class NameList {
 public:
  explicit NameList(fs::path file) : file_(std::move(file)) {
    constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 28;
    std::istringstream lines(read_file(file_, kMostBytes));
    for (std::string line; std::getline(lines, line);) {
      if (lines_.empty() && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
      lines_.push_back(std::move(line));
    }
  }

  /// Those of `images` that the list names, in their order.
  std::vector<std::string> of(const std::vector<std::string>& images) const {
    std::map<std::string, std::string> by_name;  // of the same last part the first, as that of the whole name
    for (const std::string& image : images) {
      by_name.emplace(without_suffix(image), image);
      by_name.emplace(fs::path(without_suffix(image)).filename().string(), image);
    }
    std::set<std::string> chosen;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i].empty()) continue;
      const std::string* image = find(by_name, lines_[i]);
      if (image == nullptr) image = find(by_name, lines_[i].substr(0, lines_[i].find_first_of(" \t")));
      if (image == nullptr)
        throw DataError(fmt::format("{}:{}: there is no image '{}'", file_.string(), i + 1, shown(lines_[i], 80)));
      chosen.insert(*image);
    }
    if (chosen.empty()) throw DataError(fmt::format("{}: names no image", file_.string()));
    return {chosen.begin(), chosen.end()};
  }

 private:
  static const std::string* find(const std::map<std::string, std::string>& by_name, const std::string& name) {
    const std::string stem = has_image_suffix(name) ? without_suffix(name) : name;
    for (const std::string& key : {stem, fs::path(stem).filename().string()})
      if (const auto found = by_name.find(key); found != by_name.end()) return &found->second;
    return nullptr;
  }

  fs::path file_;
  std::vector<std::string> lines_;
};

/// An image and its mask, relative to their folders.
struct Pair {
  std::string image, mask;
};

/// One part of the set; listed once, when it is first used.
class ImageMaskPairs {
 public:
  ImageMaskPairs(PairFolders folders, const MaskOptions& options)
      : folders_(std::move(folders)), names_(options.names), skips_unmasked_(options.skips_unmasked) {}

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
    ImageFiles images = list_image_files(folders_.images);
    if (images.names.empty())
      throw DataError(fmt::format("{}: {}", folders_.images.string(), no_images_text(images.ignored)));
    ImageFiles masks = folders_.are_one() ? images : list_image_files(folders_.masks);
    ignored_.add(images.ignored, "images");
    if (!folders_.are_one()) ignored_.add(masks.ignored, "masks");
    if (masks.names.empty()) throw DataError(fmt::format("{}: holds no masks", folders_.masks.string()));
    const MaskNames names = names_ ? *names_ : found_names(images.names, masks.names);
    if (folders_.are_one()) part(names, images.names, masks.names);
    if (!folders_.list.empty()) images.names = NameList(folders_.list).of(images.names);
    pair(names, images.names, masks.names);
  }
  MaskNames found_names(const std::vector<std::string>& images, const std::vector<std::string>& masks) const {
    std::vector<std::string> of_images, of_masks;
    for (const std::string& name : images) of_images.push_back(without_suffix(name));
    for (const std::string& name : masks) of_masks.push_back(without_suffix(name));
    return find_mask_names(of_images, folders_.are_one() ? of_images : of_masks).value_or(MaskNames());
  }
  /// The files of one folder: masks by their names, or, where those have none of their own, all but JPEG files.
  void part(const MaskNames& names, std::vector<std::string>& images, std::vector<std::string>& masks) const {
    const bool by_name = !names.prefix.empty() || !names.suffix.empty();
    const auto is_mask = [&](const std::string& name) {
      return by_name ? names.is_mask(without_suffix(name)) : !is_jpeg(name);
    };
    std::erase_if(images, is_mask);
    std::erase_if(masks, [&](const std::string& name) { return !is_mask(name); });
    if (images.empty() || masks.empty())
      throw DataError(
          fmt::format("{}: holds images and masks, by data.images and data.masks, but which are masks is not in their "
                      "names: say it "
                      "by data.masks: {{suffix: _mask}} or prefix",
                      folders_.images.string()));
  }
  void pair(const MaskNames& names, const std::vector<std::string>& images,
            const std::vector<std::string>& mask_files) const {
    std::map<std::string, std::string> masks = by_stem(mask_files);
    std::map<std::string, std::string> seen;
    std::vector<std::string> without;
    std::string expected;
    for (const std::string& name : images) {
      const std::string stem = without_suffix(name);
      if (const auto [other, added] = seen.emplace(stem, name); !added)
        throw DataError(fmt::format("{}: '{}' and '{}' would have one mask", folders_.images.string(),
                                    printable_line(other->second), printable_line(name)));
      auto mask = masks.end();
      if (const auto wanted = names.mask_of(stem)) mask = masks.find(*wanted);
      if (mask == masks.end())  // a.jpg.png, the mask of a.jpg
        if (const auto wanted = names.mask_of(name)) mask = masks.find(*wanted);
      if (mask == masks.end()) {
        without.push_back(name);
        if (expected.empty()) expected = names.mask_of(stem).value_or(names.prefix + stem + names.suffix);
        continue;
      }
      pairs_.push_back({name, mask->second});
      used_.push_back(mask->second);
    }
    tell_unmasked(without, expected, images.size(), mask_files);
    if (!folders_.list.empty()) return;  // the other masks are those of other parts
    std::ranges::sort(used_);
    for (const auto& [stem, name] : masks)
      if (!std::ranges::binary_search(used_, name)) ignored_.add((folders_.masks / name).string());
  }
  /// By their names without suffix. Of several files of one name the JPEG file, which has no exact values, is ignored.
  std::map<std::string, std::string> by_stem(const std::vector<std::string>& files) const {
    std::map<std::string, std::string> masks;
    for (const std::string& name : files) {
      const auto [known, is_new] = masks.emplace(without_suffix(name), name);
      if (is_new) continue;
      const bool replaces = is_jpeg(known->second) && !is_jpeg(name);
      ignored_.add((folders_.masks / (replaces ? known->second : name)).string());
      if (replaces) known->second = name;
    }
    return masks;
  }
  void tell_unmasked(const std::vector<std::string>& without, const std::string& expected, std::size_t images,
                     const std::vector<std::string>& masks) const {
    if (without.empty()) return;
    for (const std::string& name : without) ignored_.add((folders_.images / name).string() + " (it has no mask)");
    if (skips_unmasked_ && without.size() < images) return;
    const std::string count =
        without.size() > 1 ? fmt::format(" ({} of {} images have none)", without.size(), images) : "";
    const std::string advice =
        without.size() == images
            ? fmt::format(
                  "; the folder of masks has {}: say how masks are called by data.masks: {{suffix: _mask}}, or "
                  "prefix, image_suffix, image_prefix",
                  shown(masks.front(), 80))
            : "; data.on_error: skip leaves images without a mask out";
    throw DataError(fmt::format("{}: has no mask; expected {}.png{}{}",
                                printable_line((folders_.images / without.front()).string()),
                                printable_line((folders_.masks / expected).string()), count, advice));
  }

  PairFolders folders_;
  std::optional<MaskNames> names_;
  bool skips_unmasked_;
  mutable Once once_;
  mutable std::vector<Pair> pairs_;
  mutable std::vector<std::string> used_;
  mutable IgnoredFiles ignored_;
};

class SegmentationFolderReader : public ImageFileReader {
 public:
  SegmentationFolderReader(PairFolders folders, MaskOptions options)
      : pairs_(std::move(folders), options), options_(std::move(options)) {}

  DatasetFacts facts() const override {
    DatasetFacts facts{pairs_.size(), {0, 0, options_.channels}, options_.reading->classes};
    facts.targets = {{"labels", {0, 0}, DType::int32, FieldEncoding::mask}};
    facts.ignored_label = options_.reading->ignored;
    facts.masks = options_.reading;
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

/// Finds parts below a set's folder, whichever of the orders its folders have: part/images, images/part, or the
/// part's name within the folder's, as `{part}_images`.
struct PartFinder {
  static constexpr std::string_view kPart = "{part}";

  fs::path path;
  std::string images, masks;

  PairFolders whole() const { return {folder(images, ""), folder(masks, "")}; }
  /// The part `name`, a folder or a list of names, or the first of `usual` that is there; empty where none is.
  PairFolders part(const std::string& name, std::span<const std::string_view> usual) const {
    if (name.ends_with(".txt")) {
      PairFolders folders = whole();
      folders.list = path / name;
      return folders;
    }
    if (!name.empty()) return folders_of(name);
    std::vector<std::string> names(usual.begin(), usual.end());
    if (!has_part_in_name()) {
      names.clear();
      for (const fs::path& folder : {path, path / images})
        std::ranges::copy(find_folders(folder, usual), std::back_inserter(names));
    }
    for (const std::string& found : names)
      if (fs::is_directory(images_of(found))) return folders_of(found);
    return {};
  }
  /// The same of held-out samples; images without a folder of masks, as those of a competition's test, are no part.
  PairFolders labelled_part(const std::string& name, std::span<const std::string_view> usual) const {
    const PairFolders folders = part(name, usual);
    return name.empty() && !fs::is_directory(folders.masks) ? PairFolders() : folders;
  }
  bool has_part_in_name() const { return images.find(kPart) != std::string::npos; }

 private:
  bool parts_are_outer(const std::string& part) const { return fs::is_directory(path / part / images); }
  PairFolders folders_of(const std::string& part) const { return {images_of(part), masks_of(part)}; }
  fs::path images_of(const std::string& part) const { return folder(images, part); }
  fs::path masks_of(const std::string& part) const { return folder(masks, part); }
  /// The folder `name` of a part; of an empty one: of the whole set.
  fs::path folder(std::string name, const std::string& part) const {
    if (const std::size_t at = name.find(kPart); at != std::string::npos)
      return normal(path / name.replace(at, kPart.size(), part));
    return normal(parts_are_outer(part) ? path / part / name : path / name / part);
  }
  /// Without "." and a slash at its end, so that equal folders have equal names.
  static fs::path normal(const fs::path& path) {
    const fs::path shorter = path.lexically_normal();
    return shorter.has_filename() || shorter == shorter.root_path() ? shorter : shorter.parent_path();
  }
};

/// `masks: annotations`, or a map.
void read_masks(ConfigMap& data, PartFinder& finder, MaskOptions& options) {
  const ConfigNode node = data.node(
      {"masks",
       "Name of the folders of masks; or a map: the folder, how masks are called, and which of their stored values is "
       "which class. A folder as {part}_masks has the part's name (train, val, test) in its own; `.` is the folder "
       "itself, where images and masks lie together.",
       "annotations | {folder: masks, suffix: _mask}"},
      "masks");
  MaskReading reading;
  if (node.is_map()) {
    ConfigMap masks = node.as_map();
    finder.masks = masks.text({"folder", "Name of the folders of masks.", "SegmentationClass"}, "masks");
    options.names = read_mask_names(masks);
    reading = read_mask_reading(data, &masks);
    masks.finish();
  } else {
    finder.masks = node.as_text();
    reading = read_mask_reading(data, nullptr);
  }
  options.reading = std::make_shared<const MaskReading>(std::move(reading));
}

}  // namespace

/// `data: {format: segmentation_folder}`: path, images, masks, classes, ignore, channels, train, validation, test,
/// split, and, read by all formats, on_error.
SampleSplits segmentation_folder_format(ConfigMap& data) {
  data.describe(
      "Images and their masks, files whose pixels are class numbers or values that stand for classes (masks.values): "
      "path/images/a.jpg and path/masks/a.png, or path/train/images/…, path/val/images/…, or path/images/train/…, or "
      "both in one folder.");
  const ConfigNode path = data.node({"path", "The folder.", "data/roads"});
  const PartNames names = read_part_names(data, "Folder, or list of names (a .txt file within path),");
  PartFinder finder{.path = read_folder(path)};
  finder.images =
      data.text({"images", "Name of the folders of images. See masks for {part} and `.`.", "photos"}, "images");
  MaskOptions options{.channels = read_image_channels(data)};
  read_masks(data, finder, options);
  if (!data.self().is_described())  // all formats' key
    if (const auto on_error = data.find("on_error")) options.skips_unmasked = on_error->is_text("skip");
  const auto reader = [&](const PairFolders& folders) -> std::shared_ptr<const SampleReader> {
    if (folders.images.empty()) return nullptr;
    return std::make_shared<SegmentationFolderReader>(folders, options);
  };
  const PairFolders training = finder.part(names.train, kTrainFolders);
  const PairFolders validation = finder.labelled_part(names.validation, kValidationFolders);
  const PairFolders test = finder.labelled_part(names.test, kTestFolders);
  const bool has_parts = !validation.images.empty() || !test.images.empty();
  if (training.images.empty() && (has_parts || (finder.has_part_in_name() && !path.is_described())))
    path.fail("has held-out samples, but no folder 'train'; name it by data.train");
  if (has_parts && names.split && !data.self().is_described())
    data.node("split").fail_at_key("nothing is split off where samples are held out already: remove the key");
  return splits_of_parts(reader(training.images.empty() ? finder.whole() : training), reader(validation), reader(test),
                         names);
}

}  // namespace bantam
