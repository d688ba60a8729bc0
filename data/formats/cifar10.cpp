// CIFAR-10 as a format: its keys, its facts, checks of its files, and a record turned into pixels at each read.
#include "bantam/data/formats/cifar10.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"
#include "bantam/base/parallel.h"
#include "bantam/base/text.h"
#include "bantam/data/formats/sha256.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPlane = 32 * 32;
constexpr std::int64_t kImageBytes = 3 * kPlane;
constexpr std::int64_t kRecordBytes = 1 + kImageBytes;
constexpr std::int64_t kClasses = 10;
constexpr std::size_t kTrainFiles = 5;
constexpr std::size_t kSumBytes = std::size_t{1} << 18;  // read at once for a checksum

/// A file of the official distribution and its published sum.
struct OfficialFile {
  const char* name;
  const char* sha256;
};

constexpr std::array<OfficialFile, kTrainFiles + 1> kFiles = {{
    {"data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
    {"data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
    {"data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
    {"data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
    {"data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
    {"test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
}};

[[noreturn]] void fail_missing(const fs::path& path, const OfficialFile& file, const std::string& reason) {
  throw DataError(
      fmt::format("{}: cannot be read: {}. CIFAR-10 is read from the official binary version, "
                  "\"cifar-10-binary.tar.gz\", which is to be had from "
                  "the CIFAR-10 page of the University of Toronto (https://www.cs.toronto.edu/~kriz/cifar.html): "
                  "unpack it and set data.path to "
                  "its folder cifar-10-batches-bin. {} must have the SHA-256 {}",
                  path.string(), reason, file.name, file.sha256));
}

/// The folder that holds the files: the given one, or its cifar-10-batches-bin.
fs::path find_folder(const fs::path& given) {
  const fs::path inner = given / "cifar-10-batches-bin";
  std::error_code ignored;
  const bool has_files = fs::exists(given / kFiles[0].name, ignored);
  return !has_files && fs::is_directory(inner, ignored) ? inner : given;
}

/// Existence and size.
void check_file(const fs::path& path, const OfficialFile& file, std::int64_t records) {
  std::error_code error;
  if (fs::is_directory(path, error)) fail_missing(path, file, "it is a folder");
  const auto size = fs::file_size(path, error);
  if (error) fail_missing(path, file, error.message());
  const auto bytes = static_cast<std::int64_t>(size);
  if (bytes == records * kRecordBytes) return;
  const std::string expected =
      fmt::format("expected {} bytes ({} records of {} bytes)", format_count(records * kRecordBytes),
                  format_count(records), format_count(kRecordBytes));
  const std::int64_t whole = bytes / kRecordBytes;
  if (bytes > records * kRecordBytes)
    throw DataError(fmt::format("{}: has {} bytes, {}: there is more after record {}, at byte offset {}", path.string(),
                                format_count(bytes), expected, records - 1, records * kRecordBytes));
  throw DataError(fmt::format("{}: has {} bytes, {}: record {} at byte offset {} is {}", path.string(),
                              format_count(bytes), expected, whole, whole * kRecordBytes,
                              bytes % kRecordBytes == 0 ? "missing" : "cut short"));
}

/// One record's planes (3, 32, 32) to pixels (32, 32, 3).
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

void verify_sum(const fs::path& path, const OfficialFile& file) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail_missing(path, file, std::strerror(errno));
  std::vector<std::uint8_t> buffer(kSumBytes);  // a thread's stack may be smaller
  Sha256 sum;
  while (stream.read(reinterpret_cast<char*>(buffer.data()), static_cast<std::streamsize>(buffer.size())) ||
         stream.gcount() > 0)
    sum.update(std::span(buffer).first(static_cast<std::size_t>(stream.gcount())));
  const std::string found = sum.finish();
  if (found != file.sha256)
    throw DataError(
        fmt::format("{}: has the SHA-256 {}, but the official file has {}: it is damaged or another version",
                    path.string(), found, file.sha256));
}

/// A file that is opened at its first read, and read at any place by any thread.
class RecordFile {
 public:
  explicit RecordFile(OfficialFile file) : file_(file) {}
  ~RecordFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  const OfficialFile& official() const { return file_; }
  void read(const fs::path& given, std::int64_t record, std::span<std::uint8_t, kRecordBytes> bytes) {
    std::call_once(opened_, [&] { open(given); });
    for (std::int64_t done = 0; done < kRecordBytes;) {
      const ssize_t got = ::pread(descriptor_, bytes.data() + done, static_cast<std::size_t>(kRecordBytes - done),
                                  record * kRecordBytes + done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) fail(record, fmt::format("cannot be read: {}", got < 0 ? std::strerror(errno) : "the file ends"));
      done += got;
    }
    if (bytes[0] >= kClasses)
      fail(record, fmt::format("has the label {}, which is not one of 0 to {}", bytes[0], kClasses - 1));
  }

 private:
  void open(const fs::path& given) {
    path_ = find_folder(given) / file_.name;
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_missing(path_, file_, std::strerror(errno));
  }
  [[noreturn]] void fail(std::int64_t record, const std::string& what) const {
    throw DataError(
        fmt::format("{}: record {} at byte offset {} {}", path_.string(), record, record * kRecordBytes, what));
  }

  OfficialFile file_;
  std::once_flag opened_;
  fs::path path_;
  int descriptor_ = -1;
};

class Cifar10Reader : public SampleReader {
 public:
  Cifar10Reader(Cifar10Options options, std::size_t first_file, std::size_t files) : options_(std::move(options)) {
    for (std::size_t i = first_file; i < first_file + files; ++i) {
      OfficialFile file = kFiles[i];
      if (options_.sha256) file.sha256 = (*options_.sha256)[i].c_str();
      files_.push_back(std::make_unique<RecordFile>(file));
    }
  }

  DatasetFacts facts() const override {
    return {static_cast<std::int64_t>(files_.size()) * options_.records_per_file,
            {32, 32, 3},
            {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
  }
  void check(bool verify, int threads) const override {
    const fs::path folder = find_folder(options_.path);
    for (const auto& file : files_) check_file(folder / file->official().name, file->official(), records());
    if (!verify) return;
    parallel_parts(static_cast<std::int64_t>(files_.size()), threads, [&](std::int64_t i) {
      const OfficialFile& file = files_[static_cast<std::size_t>(i)]->official();
      verify_sum(folder / file.name, file);
    });
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    std::array<std::uint8_t, kRecordBytes> record;
    files_[static_cast<std::size_t>(index / records())]->read(options_.path, index % records(), record);
    interleave(record.data() + 1, reinterpret_cast<std::uint8_t*>(fields[0].data()));
    const std::int32_t label = record[0];
    std::memcpy(fields[1].data(), &label, sizeof label);
  }

 private:
  std::int64_t records() const { return options_.records_per_file; }

  Cifar10Options options_;
  std::vector<std::unique_ptr<RecordFile>> files_;
};

}  // namespace

SampleSplits cifar10_readers(const Cifar10Options& options) {
  return {std::make_shared<Cifar10Reader>(options, 0, kTrainFiles),
          std::make_shared<Cifar10Reader>(options, kTrainFiles, 1)};
}

/// `data: {format: cifar10}`: path.
SampleSplits cifar10_format(ConfigMap& data) {
  data.describe("CIFAR-10's official binary files: 50,000 and 10,000 images, 32 × 32 in colour, ten classes.");
  return cifar10_readers(
      {.path = data.text({"path",
                          "Folder of the official binary files (data_batch_1.bin, …). Relative to the current folder.",
                          "data/cifar-10-batches-bin"})});
}

}  // namespace bantam
