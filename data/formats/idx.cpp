// IDX files, the format of MNIST and its likes (Fashion-MNIST, KMNIST): four files, each plain or .gz.
//
// A file is a magic number (0x00000803 for images, 0x00000801 for labels: unsigned bytes, then the number of
// dimensions), one extent a dimension, all of them big-endian 32-bit numbers, and one byte an element, row by row.
// Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "File formats".
//
// Plain files are read in place. The middle of a .gz file can be reached only through all before it: such a file is
// decompressed once, when it is checked, into host memory of the reader's own (47 MB for MNIST's training images),
// which is released with the reader.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/config/config.h"
#include "bantam/base/config/config_path.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/files/file_bytes.h"
#include "bantam/data/files/once.h"
#include "bantam/data/formats/class_names.h"
#include "bantam/data/formats/idx_files.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kWord = 4;                 // bytes of the magic number, and of an extent
constexpr std::uint32_t kUnsignedBytes = 0x0800;  // the magic number without its dimensions
constexpr std::int64_t kMostSide = 1 << 15, kMostItems = std::int64_t{1} << 31;

/// One file: its header, and its items, a row of bytes each.
class IdxFile {
 public:
  /// Reads the header of `rank` extents. Throws DataError where it cannot be read, for another magic number, and for
  /// extents that are 0 or beyond all sense.
  IdxFile(const fs::path& path, int rank) : rank_(rank) {
    bytes_ = open_file_bytes(path);
    bytes_->fetch(header_bytes());
    read_header();
  }

  const std::string& path() const { return bytes_->name(); }
  const Shape& extents() const { return extents_; }
  std::int64_t count() const { return extents_[0]; }
  /// Makes items readable. Throws DataError where the bytes after the header are not what it says.
  void open_items() {
    const std::int64_t whole = header_bytes() + extents_.elements();
    bytes_->fetch(whole + 1);  // one more tells whether there is more, and lets zlib compare the checksum
    const std::int64_t bytes = bytes_->size();
    if (bytes != whole)
      throw DataError(fmt::format("{}: has {}{} bytes, expected {} (a header of {} and {} of {})", path(),
                                  bytes > whole ? "more than " : "", format_count(std::min(bytes, whole)),
                                  format_count(whole), header_bytes(), format_count(count()), item_bytes()));
  }
  void read(std::int64_t item, std::span<std::uint8_t> bytes) const {
    bytes_->read(header_bytes() + item * item_bytes(), bytes);
  }
  std::uint64_t resident_bytes() const {
    return bytes_->in_memory() ? static_cast<std::uint64_t>(header_bytes() + extents_.elements()) : 0;
  }

 private:
  std::int64_t header_bytes() const { return kWord * (1 + rank_); }
  std::int64_t item_bytes() const { return extents_.without_first().elements(); }
  std::uint32_t word(std::int64_t index) const {
    std::array<std::uint8_t, kWord> bytes;
    bytes_->read(index * kWord, bytes);
    std::uint32_t value = 0;
    for (const std::uint8_t byte : bytes) value = value << 8 | byte;
    return value;
  }
  void read_header() {
    const std::uint32_t magic = word(0), expected = kUnsignedBytes + static_cast<std::uint32_t>(rank_);
    if (magic != expected)
      throw DataError(
          fmt::format("{}: begins with the magic number 0x{:08x}, expected 0x{:08x} (unsigned bytes in {} dimension{})",
                      path(), magic, expected, rank_, rank_ == 1 ? "" : "s"));
    std::vector<std::int64_t> found;
    for (int axis = 0; axis < rank_; ++axis) {
      found.push_back(word(1 + axis));
      if (found.back() < 1 || found.back() >= (axis == 0 ? kMostItems : kMostSide))
        throw DataError(fmt::format("{}: says that its extent {} is {}; expected 1 to {}", path(), axis, found.back(),
                                    (axis == 0 ? kMostItems : kMostSide) - 1));
    }
    extents_ = Shape(std::span<const std::int64_t>(found));
  }

  int rank_;
  Shape extents_;  // (samples, height, width) or (samples), as the header has them
  std::unique_ptr<FileBytes> bytes_;
};

/// The facts about the files that the configuration states; the files state the others.
struct IdxOptions {
  FoundPath path;
  std::optional<std::string> set;  ///< of a folder of several: IdxFiles' key
  std::optional<std::array<std::int64_t, 2>> image_size;
  std::vector<std::string> classes;
};

/// One split of which a configuration can say the size.
struct IdxSplit {
  std::string prefix;     ///< of its files' names
  std::string count_key;  ///< that says how many samples it has
  std::optional<std::int64_t> samples;
  std::int64_t usual = 0;  ///< MNIST's, which a plan supposes where there are no files
};

class IdxReader : public SampleReader {
 public:
  IdxReader(IdxOptions options, IdxSplit split) : options_(std::move(options)), split_(std::move(split)) {}

  DatasetFacts facts() const override {
    const Shape images = extents();
    return {images[0], {images[1], images[2], 1}, options_.classes};
  }
  void check(bool, int) const override { open(); }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    open();
    images_->read(index, {reinterpret_cast<std::uint8_t*>(fields[0].data()), fields[0].size()});
    read_targets(index, fields.subspan(1));
  }
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override {
    open();
    std::uint8_t byte = 0;
    labels_->read(index, {&byte, 1});
    const std::int32_t label = byte;
    if (label >= std::ssize(options_.classes))
      throw DataError(fmt::format("{}: item {} is the label {}, but data.classes names {}, 0 to {}", labels_->path(),
                                  index, label, counted(options_.classes.size(), "class", "classes"),
                                  options_.classes.size() - 1));
    std::memcpy(targets[0].data(), &label, sizeof label);
  }
  std::string name_of(std::int64_t index) const override {
    return fmt::format("{}, item {}", (options_.path.path / images_name()).string(), index);
  }
  std::vector<std::string> files_of(std::int64_t) const override {
    open();
    return {images_->path(), labels_->path()};
  }
  std::uint64_t resident_bytes() const override {
    if (files().first.empty()) return 0;
    open_headers();
    return images_->resident_bytes() + labels_->resident_bytes();
  }

 private:
  /// Images and labels of the split; empty paths: they are not there.
  std::pair<fs::path, fs::path> files() const {
    const std::map<std::string, IdxFiles> sets = find_idx_sets(options_.path.path);
    auto found = options_.set ? sets.find(*options_.set) : sets.find("");
    if (!options_.set && sets.size() == 1) found = sets.begin();
    if (found == sets.end()) {
      if (sets.size() > 1 || (options_.set && !sets.empty())) fail_sets(sets);
      return {};
    }
    const IdxFiles& set = found->second;
    return split_.prefix == "train" ? std::pair(set.train_images, set.train_labels)
                                    : std::pair(set.test_images, set.test_labels);
  }
  [[noreturn]] void fail_sets(const std::map<std::string, IdxFiles>& sets) const {
    std::vector<std::string> names;
    for (const auto& [name, set] : sets) names.push_back(fmt::format("'{}'", shown(name)));
    throw DataError(fmt::format("{}: has the IDX files of {}; data.set names {}", options_.path.path.string(),
                                shown(join(names, ", ", " and "), 400),
                                options_.set ? fmt::format("'{}'", shown(*options_.set)) : "one of them"));
  }
  /// Where it is there.
  fs::path file(const fs::path& found, const std::string& name) const {
    if (!found.empty()) return found;
    for (const std::string& in_place : {name, name + ".gz"})
      if (const fs::path folder = options_.path.path / in_place; fs::is_directory(folder))
        throw DataError(fmt::format("{}: cannot be read: it is a folder", folder.string()));
    throw DataError(
        fmt::format("{}: is not there, and neither is {}.gz: data.path must be the folder of the files "
                    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
                    "t10k-labels-idx1-ubyte, each as it is or as .gz{}",
                    (options_.path.path / name).string(), name,
                    options_.path.is_there ? "" : "; there is no such folder" + options_.path.places()));
  }
  std::string images_name() const { return split_.prefix + "-images-idx3-ubyte"; }
  std::string labels_name() const { return split_.prefix + "-labels-idx1-ubyte"; }

  /// Returns the images' extents: the file's; without one those that the configuration says, or MNIST's.
  Shape extents() const {
    if (files().first.empty()) return expected({split_.usual, 28, 28});
    open_headers();
    return images_->extents();
  }
  /// The extents that the configuration says, otherwise `found`.
  Shape expected(const Shape& found) const {
    const auto [height, width] = options_.image_size.value_or(std::array{found[1], found[2]});
    return {split_.samples.value_or(found[0]), height, width};
  }
  /// Opens both files and compares their headers, once.
  void open_headers() const {
    headers_.run([this] {
      const auto [images_file, labels_file] = files();
      auto images = std::make_unique<IdxFile>(file(images_file, images_name()), 3);
      auto labels = std::make_unique<IdxFile>(file(labels_file, labels_name()), 1);
      if (images->count() != labels->count())
        throw DataError(fmt::format("{}: holds {} images, but {} holds {} labels", images->path(),
                                    format_count(images->count()), labels->path(), format_count(labels->count())));
      if (const Shape wanted = expected(images->extents()); wanted != images->extents())
        throw DataError(fmt::format("{}: holds {}, expected {}: set {} and data.image_size to what the file holds",
                                    images->path(), to_string(images->extents()), to_string(wanted), split_.count_key));
      images_ = std::move(images);
      labels_ = std::move(labels);
    });
  }
  void open() const {
    opened_.run([this] {
      open_headers();
      images_->open_items();
      labels_->open_items();
    });
  }

  IdxOptions options_;
  IdxSplit split_;
  mutable Once headers_, opened_;
  mutable std::unique_ptr<IdxFile> images_, labels_;
};

}  // namespace

/// `data: {format: idx}`: path, classes (names of the labels 0, 1, …; ten digits by default), and what the files must
/// hold: train_samples, test_samples, image_size.
SampleSplits idx_format(ConfigMap& data) {
  data.describe(
      "IDX files, the format of MNIST, Fashion-MNIST, KMNIST and their likes: four files, plain or .gz, also as "
      "train-images.idx3-ubyte.");
  constexpr IntegerRange kSamples{.min = 1, .max = 1 << 30}, kSide{.min = 1, .max = kMostSide - 1};
  constexpr std::string_view kAsFiles = "what the files hold; MNIST's where there are none yet";
  IdxOptions options{
      .path = find_path(data.node({"path",
                                   "Folder of the four IDX files as they are downloaded (train-images-idx3-ubyte.gz, "
                                   "…) or unpacked: MNIST, Fashion-MNIST and their likes.",
                                   "data/fashion-mnist"}))};
  if (const auto set = data.find(
          {"set", "Which set of a folder that has the files of several, as EMNIST's has: what their names begin with.",
           "emnist-letters", "the one that is there"}))
    options.set = set->as_text();
  options.classes = data.texts({"classes", "Names of the labels 0, 1, …: 1 to 256 of them.", "[cat, dog]"},
                               {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
  if (const std::string fault = fault_of_class_names(options.classes, 256); !fault.empty())  // labels are bytes
    data.node("classes").fail(fault);
  if (const auto size =
          data.find({"image_size", "Height and width that the files' images must have.", "28 | [24, 28]", kAsFiles}))
    options.image_size = size->as_pair(kSide);
  const auto samples = [&](ConfigKey key) -> std::optional<std::int64_t> {
    const auto node = data.find(key);
    return node ? std::optional(node->as_integer(kSamples)) : std::nullopt;
  };
  const auto train = samples({"train_samples", "How many training samples there must be.", "60000", kAsFiles});
  const auto test = samples({"test_samples", "How many held-out samples there must be.", "10000", kAsFiles});
  return {std::make_shared<IdxReader>(options, IdxSplit{"train", "data.train_samples", train, 60000}),
          std::make_shared<IdxReader>(options, IdxSplit{"t10k", "data.test_samples", test, 10000})};
}

}  // namespace bantam
