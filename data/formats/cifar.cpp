// Where a CIFAR set's files are and in which form, and a record turned into pixels at each read.
#include "bantam/data/formats/cifar.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/config/config_path.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/parallel.h"
#include "bantam/base/sha256.h"
#include "bantam/base/text.h"
#include "bantam/data/files/archive.h"
#include "bantam/data/files/once.h"
#include "bantam/data/files/pickle.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPlane = 32 * 32;
constexpr std::int64_t kImageBytes = 3 * kPlane;
/// The most bytes of an archive's members together, or of a file. The largest are pickles of CIFAR-100 that Python 3
/// has written anew by protocol 2, 307 MB.
constexpr std::int64_t kMostPickle = 320'000'000;
constexpr std::size_t kSumBytes = std::size_t{1} << 18;  // read at once for a checksum

enum class Form : std::uint8_t { binary, compressed, python, archive };

/// Where the files are. `ending` is that of compressed files.
struct CifarFiles {
  Form form = Form::binary;
  fs::path path;
  std::string ending;
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The first form whose first training file is there; without one the binary form, of which files will be missing.
CifarFiles find_place(const CifarSet& set, const fs::path& given) {
  std::error_code ignored;
  if (fs::is_regular_file(given, ignored)) return {Form::archive, given, ""};
  const CifarBatch& first = set.train[0];
  for (const fs::path& folder : {given, given / set.binary_folder, given / set.python_folder}) {
    if (is_there(folder / first.binary)) return {Form::binary, folder, ""};
    for (const char* ending : {".xz", ".gz"})
      if (is_there(folder / (first.binary + ending))) return {Form::compressed, folder, ending};
    if (is_there(folder / first.python)) return {Form::python, folder, ""};
  }
  for (const std::string& archive : {set.binary_archive, set.python_archive})
    if (is_there(given / archive)) return {Form::archive, given / archive, ""};
  const fs::path inner = given / set.binary_folder;
  return {Form::binary, fs::is_directory(inner, ignored) ? inner : given, ""};
}

/// A record's image: (3, 32, 32) to (32, 32, 3).
void interleave(const std::uint8_t* planes, std::uint8_t* pixels) {
  const std::uint8_t* red = planes;
  const std::uint8_t* green = planes + kPlane;
  const std::uint8_t* blue = planes + 2 * kPlane;
  for (std::int64_t p = 0; p < kPlane; ++p) {
    pixels[3 * p] = red[p];
    pixels[3 * p + 1] = green[p];
    pixels[3 * p + 2] = blue[p];
  }
}

/// A batch of the Python version as the binary version has it.
std::vector<std::uint8_t> records_of(const CifarSet& set, const std::string& name, std::vector<std::uint8_t> file) {
  const Pickle pickle(name, std::move(file));
  const PickledValue& images = pickle.at("data", PickledValue::Kind::array);
  if (images.items.size() != 2 || images.items[1]->integer != kImageBytes)
    throw DataError(fmt::format("{}: its 'data' is no array of rows of {} bytes", name, kImageBytes));
  const auto rows = static_cast<std::size_t>(images.items[0]->integer);
  std::vector<std::uint8_t> records(rows * static_cast<std::size_t>(set.record_bytes()));
  for (std::size_t k = 0; k < set.label_keys.size(); ++k) {
    const std::vector<PickledValue*>& labels = pickle.at(set.label_keys[k], PickledValue::Kind::list).items;
    if (labels.size() != rows)
      throw DataError(
          fmt::format("{}: has {}, but {} '{}'", name, counted(rows, "image"), labels.size(), set.label_keys[k]));
    for (std::size_t row = 0; row < rows; ++row) {
      const PickledValue& label = *labels[row];
      if (label.kind != PickledValue::Kind::integer || label.integer < 0 || label.integer > 255)
        throw DataError(fmt::format("{}: label {} of '{}' is no class number", name, row, set.label_keys[k]));
      records[row * static_cast<std::size_t>(set.record_bytes()) + k] = static_cast<std::uint8_t>(label.integer);
    }
  }
  for (std::size_t row = 0; row < rows; ++row)
    std::memcpy(records.data() + row * static_cast<std::size_t>(set.record_bytes()) + set.label_keys.size(),
                images.text.data() + row * kImageBytes, kImageBytes);
  return records;
}

/// All bytes of a file that may be compressed.
std::vector<std::uint8_t> read_whole(const fs::path& path, std::int64_t most_bytes) {
  const auto file = open_file_bytes(path);
  file->fetch(most_bytes + 1);
  if (file->size() > most_bytes)
    throw DataError(fmt::format("{}: has more than {} bytes", path.string(), format_count(most_bytes)));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file->size()));
  file->read(0, bytes);
  return bytes;
}

class CifarReader : public SampleReader {
 public:
  CifarReader(CifarSet set, std::vector<CifarBatch> batches, FoundPath given, std::int64_t records)
      : set_(std::move(set)), batches_(std::move(batches)), given_(std::move(given)), records_(records) {}

  DatasetFacts facts() const override { return {batches() * records_, {32, 32, 3}, set_.classes}; }
  void check(bool verify, int threads) const override {
    open(threads);
    for (const auto& file : files_) check_size(*file);
    if (verify && place_.form != Form::python && !from_python_)
      parallel_parts(batches(), threads, [&](std::int64_t b) { verify_sum(static_cast<std::size_t>(b)); });
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    std::array<std::uint8_t, 2 + kImageBytes> record;
    const auto labels = static_cast<std::int64_t>(set_.label_keys.size());
    read_record(index, std::span(record).first(static_cast<std::size_t>(set_.record_bytes())));
    interleave(record.data() + labels, reinterpret_cast<std::uint8_t*>(fields[0].data()));
    copy_label(index, record[set_.label], fields[1]);
  }
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override {
    std::array<std::uint8_t, 2> labels;
    read_record(index, std::span(labels).first(set_.label_keys.size()));
    copy_label(index, labels[set_.label], targets[0]);
  }
  std::string name_of(std::int64_t index) const override {
    open();
    return fmt::format("{}, record {}", file_of(index).name(), index % records_);
  }
  std::vector<std::string> files_of(std::int64_t index) const override {
    open();
    return {file_of(index).name()};
  }
  std::uint64_t resident_bytes() const override {
    if (find_place(set_, given_.path).form == Form::binary) return 0;
    return static_cast<std::uint64_t>(batches() * records_ * set_.record_bytes());
  }

 private:
  std::int64_t batches() const { return std::ssize(batches_); }
  const FileBytes& file_of(std::int64_t index) const { return *files_[static_cast<std::size_t>(index / records_)]; }
  [[noreturn]] void fail_missing(const std::string& reason, const CifarBatch& batch) const;
  void open(int threads = 1) const;
  void open_archive() const;
  std::unique_ptr<FileBytes> open_batch(const CifarBatch& batch) const;
  void check_size(const FileBytes& file) const;
  void verify_sum(std::size_t batch) const;
  void read_record(std::int64_t index, std::span<std::uint8_t> bytes) const;
  void copy_label(std::int64_t index, std::uint8_t byte, std::span<std::byte> to) const;

  CifarSet set_;
  std::vector<CifarBatch> batches_;
  FoundPath given_;
  std::int64_t records_;
  mutable Once opened_;
  mutable CifarFiles place_;
  mutable bool from_python_ = false;  // an archive's
  mutable std::vector<std::unique_ptr<FileBytes>> files_;
};

void CifarReader::fail_missing(const std::string& reason, const CifarBatch& batch) const {
  const std::string sum =
      batch.sha256.empty() ? "" : fmt::format(". {} must have the SHA-256 {}", batch.binary, batch.sha256);
  throw DataError(fmt::format(
      "{}{}. {} is read from \"{}\" or \"{}\", which are to be had from the CIFAR page of the University of "
      "Toronto (https://www.cs.toronto.edu/~kriz/cifar.html): set data.path to one of them, or to the "
      "folder {} or {} that it unpacks to{}",
      reason, given_.is_there || given_.folders.empty() ? "" : "; there is no such path" + given_.places(), set_.name,
      set_.binary_archive, set_.python_archive, set_.binary_folder, set_.python_folder, sum));
}

void CifarReader::open(int threads) const {
  opened_.run([this, threads] {
    files_.clear();
    place_ = find_place(set_, given_.path);
    if (place_.form == Form::archive) return open_archive();
    files_.resize(batches_.size());
    parallel_parts(batches(), threads, [&](std::int64_t b) {
      const auto batch = static_cast<std::size_t>(b);
      files_[batch] = open_batch(batches_[batch]);
    });
  });
}

std::unique_ptr<FileBytes> CifarReader::open_batch(const CifarBatch& batch) const {
  const bool is_python = place_.form == Form::python;
  const fs::path path = place_.path / ((is_python ? batch.python : batch.binary) + place_.ending);
  if (!is_there(path)) fail_missing(fmt::format("{}: cannot be read: No such file or directory", path.string()), batch);
  if (place_.form == Form::binary) {
    auto file = open_plain_bytes(path);
    (void)file->size();  // a folder is none
    return file;
  }
  if (is_python) return memory_bytes(path.string(), records_of(set_, path.string(), read_whole(path, kMostPickle)));
  return memory_bytes(path.string(), read_whole(path, records_ * set_.record_bytes() + 1));
}

/// Opens the batches in an archive, of the binary or the Python version: the members' names show which one it is.
void CifarReader::open_archive() const {
  std::set<std::string> wanted;
  for (const CifarBatch& batch : batches_) wanted.insert({batch.binary, batch.python});
  // Both versions' names are wanted, of which an archive has one.
  auto members = read_members(place_.path, wanted, kMostPickle);
  for (const CifarBatch& batch : batches_) {
    const bool is_binary = members.contains(batch.binary);
    const std::string name = fmt::format("{}({})", place_.path.string(), is_binary ? batch.binary : batch.python);
    if (!is_binary && !members.contains(batch.python))
      fail_missing(fmt::format("{}: has neither {} nor {}", place_.path.string(), batch.binary, batch.python), batch);
    from_python_ = from_python_ || !is_binary;
    std::vector<std::uint8_t>& bytes = members[is_binary ? batch.binary : batch.python];
    if (!is_binary) bytes = records_of(set_, name, std::move(bytes));
    files_.push_back(memory_bytes(name, std::move(bytes)));
  }
}

void CifarReader::check_size(const FileBytes& file) const {
  const std::int64_t bytes = file.size(), record = set_.record_bytes();
  if (bytes == records_ * record) return;
  const std::string expected =
      fmt::format("expected {} bytes ({} records of {} bytes)", format_count(records_ * record), format_count(records_),
                  format_count(record));
  const std::int64_t whole = bytes / record;
  if (bytes > records_ * record)
    throw DataError(fmt::format("{}: has {} bytes, {}: there is more after record {}, at byte offset {}", file.name(),
                                format_count(bytes), expected, records_ - 1, records_ * record));
  throw DataError(fmt::format("{}: has {} bytes, {}: record {} at byte offset {} is {}", file.name(),
                              format_count(bytes), expected, whole, whole * record,
                              bytes % record == 0 ? "missing" : "cut short"));
}

void CifarReader::verify_sum(std::size_t batch) const {
  const std::string& official = batches_[batch].sha256;
  if (official.empty()) return;
  const FileBytes& file = *files_[batch];
  std::vector<std::uint8_t> buffer(kSumBytes);  // a thread's stack may be smaller
  Sha256 sum;
  for (std::int64_t at = 0; at < file.size(); at += std::ssize(buffer)) {
    const auto some =
        std::span(buffer).first(static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(buffer), file.size() - at)));
    file.read(at, some);
    sum.update(some);
  }
  const std::string found = sum.finish();
  if (found != official)
    throw DataError(
        fmt::format("{}: has the SHA-256 {}, but the official file has {}: it is damaged or another version",
                    file.name(), found, official));
}

void CifarReader::read_record(std::int64_t index, std::span<std::uint8_t> bytes) const {
  open();
  const std::int64_t record = index % records_, offset = record * set_.record_bytes();
  try {
    file_of(index).read(offset, bytes);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{} (record {} at byte offset {})", error.what(), record, offset));
  }
}

void CifarReader::copy_label(std::int64_t index, std::uint8_t byte, std::span<std::byte> to) const {
  const std::int32_t label = byte;
  if (label >= std::ssize(set_.classes))
    throw DataError(fmt::format("{}: record {} at byte offset {} has the label {}, which is not one of 0 to {}",
                                file_of(index).name(), index % records_, index % records_ * set_.record_bytes(), label,
                                set_.classes.size() - 1));
  std::memcpy(to.data(), &label, sizeof label);
}

}  // namespace

SampleSplits cifar_readers(const CifarSet& set, const FoundPath& path, std::int64_t train_records,
                           std::int64_t test_records) {
  return {std::make_shared<CifarReader>(set, set.train, path, train_records),
          std::make_shared<CifarReader>(set, set.test, path, test_records)};
}

FoundPath read_cifar_path(ConfigMap& data, const CifarSet& set) {
  const std::string meaning = fmt::format(
      "Folder of the files of the binary or the Python version (also as .xz or .gz), a folder that holds such a folder "
      "or an archive, or an archive: {}, {}.",
      set.binary_archive, set.python_archive);
  const std::string example = "data/" + set.binary_folder;
  return find_path(data.node({"path", meaning, example}));
}

}  // namespace bantam
