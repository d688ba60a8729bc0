// Reads CIFAR-10's files a stretch of records at a time: sums, checks, and turns planes into pixels on the way.
#include "bantam/data/formats/cifar10.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include <fmt/format.h>

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
constexpr std::int64_t kTrainFiles = 5;
constexpr std::int64_t kRecordsAtOnce = 128;  // 384 KiB: stays in the cache between its sum and its conversion

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

DatasetFacts facts_of(std::int64_t size) {
  return {
      size, {32, 32, 3}, {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
}

[[noreturn]] void fail_missing(const fs::path& path, const OfficialFile& file, const std::string& reason) {
  throw DataError(
      fmt::format("{}: cannot be read: {}. CIFAR-10 is read from the official binary version, "
                  "\"cifar-10-binary.tar.gz\", which is to be had from "
                  "the CIFAR-10 page of the University of Toronto (https://www.cs.toronto.edu/~kriz/cifar.html): "
                  "unpack it and set data.path to "
                  "its folder cifar-10-batches-bin. {} must have the SHA-256 {}",
                  path.string(), reason, file.name, file.sha256));
}

/// The files with the sums that the caller knows them by; the sums stay the options'.
std::array<OfficialFile, kTrainFiles + 1> expected_files(const Cifar10Options& options) {
  auto files = kFiles;
  if (options.sha256)
    for (std::size_t i = 0; i < files.size(); ++i) files[i].sha256 = (*options.sha256)[i].c_str();
  return files;
}

/// The folder that holds the files: the given one, or its cifar-10-batches-bin.
fs::path find_folder(const fs::path& given) {
  const fs::path inner = given / "cifar-10-batches-bin";
  std::error_code ignored;
  const bool has_files = fs::exists(given / kFiles[0].name, ignored);
  return !has_files && fs::is_directory(inner, ignored) ? inner : given;
}

/// Existence and size, before memory is taken for the images.
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

/// Where the records of one file go. With `verify` all of a file is read, even where only its first `wanted` records
/// are kept.
struct FileJob {
  fs::path path;
  OfficialFile file;
  std::int64_t records = 0;
  std::int64_t wanted = 0;
  bool verify = false;
  std::uint8_t* images = nullptr;
  std::int32_t* labels = nullptr;
};

void convert(const FileJob& job, std::int64_t first, std::int64_t count, const std::uint8_t* records) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t record = first + i;
    const std::uint8_t* bytes = records + i * kRecordBytes;
    if (bytes[0] >= kClasses)
      throw DataError(fmt::format("{}: record {} at byte offset {} has the label {}, which is not one of 0 to {}",
                                  job.path.string(), record, record * kRecordBytes, bytes[0], kClasses - 1));
    if (record >= job.wanted) continue;
    job.labels[record] = bytes[0];
    interleave(bytes + 1, job.images + record * kImageBytes);
  }
}

void read_one(const FileJob& job) {
  std::ifstream stream(job.path, std::ios::binary);
  if (!stream) fail_missing(job.path, job.file, std::strerror(errno));
  std::vector<std::uint8_t> buffer(kRecordsAtOnce * kRecordBytes);  // a thread's stack may be smaller
  std::optional<Sha256> sum;
  if (job.verify) sum.emplace();
  const std::int64_t records = job.verify ? job.records : job.wanted;
  for (std::int64_t first = 0; first < records; first += kRecordsAtOnce) {
    const std::int64_t count = std::min(kRecordsAtOnce, records - first);
    const auto bytes = static_cast<std::size_t>(count * kRecordBytes);
    if (!stream.read(reinterpret_cast<char*>(buffer.data()), static_cast<std::streamsize>(bytes)))
      throw DataError(fmt::format("{}: reading failed after byte offset {}", job.path.string(), first * kRecordBytes));
    if (sum) sum->update(std::span(buffer).first(bytes));
    convert(job, first, count, buffer.data());
  }
  if (!sum) return;
  const std::string found = sum->finish();
  if (found != job.file.sha256)
    throw DataError(
        fmt::format("{}: has the SHA-256 {}, but the official file has {}: it is damaged or another version",
                    job.path.string(), found, job.file.sha256));
}

}  // namespace

DatasetFacts cifar10_train_facts(const Cifar10Options& options) {
  const std::int64_t all = kTrainFiles * options.records_per_file;
  return facts_of(options.limit > 0 ? std::min(options.limit, all) : all);
}

DatasetFacts cifar10_test_facts(const Cifar10Options& options) { return facts_of(options.records_per_file); }

DatasetSplits read_cifar10(Runtime& runtime, const Cifar10Options& options) {
  const fs::path folder = find_folder(options.path);
  const auto expected = expected_files(options);
  for (const OfficialFile& file : expected) check_file(folder / file.name, file, options.records_per_file);
  auto train = std::make_shared<Dataset>(runtime, cifar10_train_facts(options));
  auto test = std::make_shared<Dataset>(runtime, cifar10_test_facts(options));
  const auto files = static_cast<std::int64_t>(kFiles.size());
  parallel_parts(files, runtime.threads(), [&](std::int64_t i) {
    const bool is_train = i < kTrainFiles;
    Dataset& set = is_train ? *train : *test;
    const std::int64_t first = is_train ? i * options.records_per_file : 0;
    const OfficialFile& file = expected[static_cast<std::size_t>(i)];
    const std::int64_t wanted = std::clamp<std::int64_t>(set.size() - first, 0, options.records_per_file);
    // Addresses only of what is there: a file beyond the limit keeps nothing.
    std::uint8_t* images = wanted > 0 ? set.images_out().data() + first * kImageBytes : nullptr;
    std::int32_t* labels = wanted > 0 ? set.labels_out().data() + first : nullptr;
    read_one({folder / file.name, file, options.records_per_file, wanted, options.verify, images, labels});
  });
  return {std::move(train), std::move(test)};
}

}  // namespace bantam
