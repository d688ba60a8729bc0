// IDX files, the format of MNIST and its likes (Fashion-MNIST, KMNIST): four files, each plain or .gz.
//
// A file is a magic number (0x00000803 for images, 0x00000801 for labels: unsigned bytes, then the number of
// dimensions), one extent a dimension, all of them big-endian 32-bit numbers, and one byte an element, row by row.
// Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "File formats".
//
// Plain files are read in place. The middle of a .gz file can be reached only through all before it: such a file is
// decompressed once, when it is checked, into host memory of the reader's own (47 MB for MNIST's training images),
// which no allocator counts and which is released with the reader.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kWord = 4;                                // bytes of the magic number, and of an extent
constexpr std::uint32_t kUnsignedBytes = 0x0800;                 // the magic number without its dimensions
constexpr std::int64_t kInflatedAtOnce = std::int64_t{1} << 20;  // bytes

/// A file's bytes, which any thread may read at any place once they are fetched.
class FileBytes {
 public:
  virtual ~FileBytes() = default;
  /// Makes the first `bytes` readable, or all where there are fewer.
  virtual void fetch(std::int64_t bytes) { (void)bytes; }
  /// Of the file, or of what is fetched of it.
  virtual std::int64_t size() const = 0;
  /// Fills `bytes` from `offset` on. Throws DataError, also where the file ends before.
  virtual void read(std::int64_t offset, std::span<std::uint8_t> bytes) const = 0;
};

class PlainBytes : public FileBytes {
 public:
  explicit PlainBytes(const fs::path& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) fail(std::strerror(errno));
  }
  ~PlainBytes() override { ::close(descriptor_); }
  PlainBytes(const PlainBytes&) = delete;
  PlainBytes& operator=(const PlainBytes&) = delete;

  std::int64_t size() const override {
    struct stat status = {};
    if (::fstat(descriptor_, &status) != 0) fail(std::strerror(errno));
    if (S_ISDIR(status.st_mode)) fail("it is a folder");
    return status.st_size;
  }
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) const override {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t got = ::pread(descriptor_, bytes.data() + done, bytes.size() - done,
                                  static_cast<off_t>(offset) + static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(std::strerror(errno));
      if (got == 0) fail(fmt::format("it ends before byte {}", offset + std::ssize(bytes)));
      done += static_cast<std::size_t>(got);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw DataError(fmt::format("{}: cannot be read: {}", path_.string(), reason));
  }
  fs::path path_;
  int descriptor_;
};

class InflatedBytes : public FileBytes {
 public:
  explicit InflatedBytes(const fs::path& path) : path_(path), file_(::gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) fail(std::strerror(errno));
  }
  void fetch(std::int64_t bytes) override {
    bytes_.reserve(static_cast<std::size_t>(bytes));
    while (size() < bytes) {
      const std::size_t before = bytes_.size();
      bytes_.resize(before + static_cast<std::size_t>(std::min(kInflatedAtOnce, bytes - size())));
      const int got = ::gzread(file_.get(), bytes_.data() + before, static_cast<unsigned>(bytes_.size() - before));
      bytes_.resize(before + static_cast<std::size_t>(std::max(got, 0)));
      int code = Z_OK;  // a file that is cut short yields bytes, with an error beside them
      std::string_view message = ::gzerror(file_.get(), &code);
      if (message.starts_with(path_.string() + ": ")) message.remove_prefix(path_.string().size() + 2);
      if (got < 0 || code == Z_BUF_ERROR)
        fail(fmt::format("{}, after {} decompressed bytes", code == Z_ERRNO ? std::strerror(errno) : message,
                         format_count(size())));
      if (got == 0) break;
    }
  }
  std::int64_t size() const override { return std::ssize(bytes_); }
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) const override {
    if (offset + std::ssize(bytes) > size()) fail(fmt::format("it ends before byte {}", offset + std::ssize(bytes)));
    std::memcpy(bytes.data(), bytes_.data() + offset, bytes.size());
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { ::gzclose(file); }
  };
  [[noreturn]] void fail(const std::string& reason) const {
    throw DataError(fmt::format("{}: cannot be decompressed: {}", path_.string(), reason));
  }
  fs::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::vector<std::uint8_t> bytes_;
};

/// One file: its header, compared with what the configuration expects, and its items, a row of bytes each.
class IdxFile {
 public:
  /// Opens NAME or NAME.gz. Throws DataError where neither can be read, and for another magic number than `expected`'s.
  IdxFile(const fs::path& folder, const std::string& name, Shape expected) : expected_(expected), path_(folder / name) {
    const fs::path zipped = folder / (name + ".gz");
    std::error_code ignored;
    if (fs::exists(path_, ignored)) {
      bytes_ = std::make_unique<PlainBytes>(path_);
    } else if (fs::exists(zipped, ignored)) {
      path_ = zipped;
      bytes_ = std::make_unique<InflatedBytes>(path_);
    } else {
      throw DataError(
          fmt::format("{}: is not there, and neither is {}.gz: data.path must be the folder of the files "
                      "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
                      "t10k-labels-idx1-ubyte, each as it is or as .gz",
                      path_.string(), name));
    }
    bytes_->fetch(header_bytes());
    read_header();
  }

  const fs::path& path() const { return path_; }
  std::int64_t count() const { return found_[0]; }
  /// Makes items readable. Throws DataError where the header's extents, or the bytes after it, are not what is
  /// expected; `keys` say what is.
  void open_items(std::string_view keys) {
    if (!std::ranges::equal(found_, expected_.extents()))
      throw DataError(fmt::format("{}: holds ({}), expected {}: set {} to what the file holds", path_.string(),
                                  fmt::join(found_, ", "), to_string(expected_), keys));
    const std::int64_t whole = header_bytes() + expected_.elements();
    bytes_->fetch(whole + 1);  // one more tells whether there is more, and lets zlib compare the checksum
    const std::int64_t bytes = bytes_->size();
    if (bytes != whole)
      throw DataError(fmt::format("{}: has {}{} bytes, expected {} (a header of {} and {} of {})", path_.string(),
                                  bytes > whole ? "more than " : "", format_count(std::min(bytes, whole)),
                                  format_count(whole), header_bytes(), format_count(count()), item_bytes()));
  }
  void read(std::int64_t item, std::span<std::uint8_t> bytes) const {
    bytes_->read(header_bytes() + item * item_bytes(), bytes);
  }

 private:
  std::int64_t header_bytes() const { return kWord * (1 + expected_.rank()); }
  std::int64_t item_bytes() const { return expected_.without_first().elements(); }
  std::uint32_t word(std::int64_t index) const {
    std::array<std::uint8_t, kWord> bytes;
    bytes_->read(index * kWord, bytes);
    std::uint32_t value = 0;
    for (const std::uint8_t byte : bytes) value = value << 8 | byte;
    return value;
  }
  void read_header() {
    const std::uint32_t magic = word(0), expected = kUnsignedBytes + static_cast<std::uint32_t>(expected_.rank());
    if (magic != expected)
      throw DataError(
          fmt::format("{}: begins with the magic number 0x{:08x}, expected 0x{:08x} (unsigned bytes in {} "
                      "dimension{})",
                      path_.string(), magic, expected, expected_.rank(), expected_.rank() == 1 ? "" : "s"));
    for (int axis = 0; axis < expected_.rank(); ++axis) found_.push_back(word(1 + axis));
  }

  Shape expected_;                   // (samples, height, width) or (samples)
  std::vector<std::int64_t> found_;  // the header's extents: any numbers
  fs::path path_;
  std::unique_ptr<FileBytes> bytes_;
};

struct IdxOptions {
  fs::path path;
  std::array<std::int64_t, 2> image_size = {28, 28};
  std::vector<std::string> classes;
};

/// One split: the files whose names begin with `prefix`.
class IdxReader : public SampleReader {
 public:
  IdxReader(IdxOptions options, std::string prefix, std::string count_key, std::int64_t samples)
      : options_(std::move(options)), prefix_(std::move(prefix)), count_key_(std::move(count_key)), samples_(samples) {}

  DatasetFacts facts() const override {
    return {samples_, {options_.image_size[0], options_.image_size[1], 1}, options_.classes};
  }
  void check(bool, int) const override { open(); }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    open();
    images_->read(index, {reinterpret_cast<std::uint8_t*>(fields[0].data()), fields[0].size()});
    std::uint8_t byte = 0;
    labels_->read(index, {&byte, 1});
    const std::int32_t label = byte;
    if (label >= std::ssize(options_.classes))
      throw DataError(fmt::format("{}: item {} is the label {}, but data.classes names {} classes, 0 to {}",
                                  labels_->path().string(), index, label, options_.classes.size(),
                                  options_.classes.size() - 1));
    std::memcpy(fields[1].data(), &label, sizeof label);
  }

 private:
  /// Opens and checks both files, once.
  void open() const {
    std::call_once(opened_, [this] {
      const auto [height, width] = options_.image_size;
      auto images =
          std::make_unique<IdxFile>(options_.path, prefix_ + "-images-idx3-ubyte", Shape{samples_, height, width});
      auto labels = std::make_unique<IdxFile>(options_.path, prefix_ + "-labels-idx1-ubyte", Shape{samples_});
      if (images->count() != labels->count())
        throw DataError(fmt::format("{}: holds {} images, but {} holds {} labels", images->path().string(),
                                    format_count(images->count()), labels->path().string(),
                                    format_count(labels->count())));
      images->open_items(fmt::format("{} and data.image_size", count_key_));
      labels->open_items(count_key_);
      images_ = std::move(images);
      labels_ = std::move(labels);
    });
  }

  IdxOptions options_;
  std::string prefix_, count_key_;
  std::int64_t samples_;
  mutable std::once_flag opened_;
  mutable std::unique_ptr<IdxFile> images_, labels_;
};

}  // namespace

/// `data: {format: idx}`: path, classes (names of the labels 0, 1, …; ten digits by default), and what the files hold
/// where that is not MNIST's 60,000 and 10,000 images of 28 by 28: train_samples, test_samples, image_size.
SampleSplits idx_format(ConfigMap& data) {
  data.describe("IDX files, the format of MNIST, Fashion-MNIST, KMNIST and their likes: four files, plain or .gz.");
  constexpr IntegerRange kSamples{.min = 1, .max = 1 << 30}, kSide{.min = 1, .max = 1 << 12};
  IdxOptions options{
      .path = data.text({"path",
                         "Folder of the four IDX files as they are downloaded (train-images-idx3-ubyte.gz, …) or "
                         "unpacked: MNIST, Fashion-MNIST and their likes. Relative to the current folder.",
                         "data/fashion-mnist"})};
  options.classes = data.texts({"classes", "Names of the labels 0, 1, …: 1 to 256 of them.", "[cat, dog]"},
                               {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
  if (options.classes.empty() || options.classes.size() > 256)
    data.node("classes").fail(
        fmt::format("{} class names; labels are bytes: expected 1 to 256", options.classes.size()));
  options.image_size = data.pair({"image_size", "Height and width of the files' images."}, kSide, options.image_size);
  const std::int64_t train =
      data.integer({"train_samples", "Images of the files of training samples."}, kSamples, 60000);
  const std::int64_t test = data.integer({"test_samples", "Images of the files of held-out samples."}, kSamples, 10000);
  return {std::make_shared<IdxReader>(options, "train", "data.train_samples", train),
          std::make_shared<IdxReader>(options, "t10k", "data.test_samples", test)};
}

}  // namespace bantam
