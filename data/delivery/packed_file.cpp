// Writes samples and their entries of the table as threads fetch them, the header last, one process at a time (flock);
// reads by pread.
#include "bantam/data/delivery/packed_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/checksum.h"
#include "bantam/base/error.h"
#include "bantam/base/file_lock.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/folder_file.h"
#include "bantam/base/parallel.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/printable.h"
#include "bantam/data/delivery/encoded_cache.h"
#include "bantam/data/formats/mask_values.h"

namespace bantam {
namespace {

static_assert(std::endian::native == std::endian::little, "packed files are little-endian");

constexpr std::array<char, 8> kMagic = {'B', 'A', 'N', 'T', 'A', 'M', 'P', 'K'};
constexpr std::uint64_t kVersion = 1;
constexpr std::int64_t kGrain = 16;                        // samples a thread fetches at a time
constexpr std::uint64_t kBroken = std::uint64_t{1} << 63;  // in an offset: there lies a message in the sample's place
constexpr std::size_t kLongestMessage = 4096;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}

/// Size and time of change of a sample's file, so that changed files have another digest.
void add_file(Checksum& sum, const std::string& name) {
  struct stat facts {};
  if (::stat(name.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return;
  const std::array<std::int64_t, 3> values = {facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
  sum.add(bytes_of(values));
}

/// One sum of names and files over ranges of samples, whatever the threads.
void add_names(Checksum& sum, const SampleReader& source, std::int64_t samples, int threads) {
  constexpr std::int64_t kRange = 4096;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>((samples + kRange - 1) / kRange));
  parallel_ranges(samples, kRange, threads, [&](std::int64_t begin, std::int64_t end) {
    Checksum range;
    std::vector<std::string> before;  // files of the last sample: one of many samples is looked at once
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t encoded = source.encoded_bytes(i);
      range.add(source.name_of(i));
      range.add(bytes_of(encoded));
      std::vector<std::string> files = source.files_of(i);
      for (std::size_t f = 0; f < files.size(); ++f)
        if (f >= before.size() || files[f] != before[f]) add_file(range, files[f]);
      before = std::move(files);
    }
    sums[static_cast<std::size_t>(begin / kRange)] = range.value();
  });
  sum.add(std::as_bytes(std::span(sums)));
}

void add_facts(Checksum& sum, const DatasetFacts& facts) {
  sum.add(bytes_of(facts.size));
  for (const std::string& name : facts.class_names) sum.add(name);
  if (facts.masks != nullptr) sum.add(facts.masks->fingerprint());
  if (facts.background) sum.add(fmt::format("background {}", fmt::join(*facts.background, " ")));
  for (const SampleField& field : facts.fields())
    sum.add(fmt::format("{} {} {} {}", field.name, to_string(field.shape), to_string(field.dtype),
                        static_cast<int>(field.encoding)));
}

/// The right to write the packed file at a path, by flock on a file beside it, which is removed at the end. Where the
/// folder or its file system has no locks there is none, and several processes may each write a whole file.
class PackingLock {
 public:
  /// Waits while another process, or thread, has it; `on_wait` is called several times a second, and what it throws
  /// ends the waiting.
  PackingLock(const std::filesystem::path& packed, const std::function<void()>& on_wait,
              const std::function<void(std::string_view)>& on_no_locks)
      : path_(packed.parent_path() / fmt::format(".{}.lock", packed.filename().string())) {
    constexpr std::chrono::milliseconds kPause{20};
    while (!try_lock()) {
      if (on_wait) on_wait();
      std::this_thread::sleep_for(kPause);
    }
    if (descriptor_)
      remove_temporaries(packed);
    else if (on_no_locks && is_first_without_locks())
      on_no_locks(
          fmt::format("the file system of {} has no locks (flock): processes that pack the same samples at once "
                      "each write the whole file",
                      packed.string()));
  }
  ~PackingLock() {
    if (descriptor_ && leads_to(path_, descriptor_.get())) ::unlink(path_.c_str());
  }
  PackingLock(const PackingLock&) = delete;
  PackingLock& operator=(const PackingLock&) = delete;

 private:
  /// False where it is another's; true, too, where nothing can be locked.
  bool try_lock() {
    try {
      descriptor_ = open_file({.path = path_}, O_RDWR | O_CREAT);
    } catch (const DataError&) {  // the folder may be read only: writing the packed file says so
    }
    if (!descriptor_) return true;
    const FileLock lock = try_lock_file(descriptor_.get(), LOCK_EX);
    // Its last holder may have removed the file.
    if (lock == FileLock::locked && leads_to(path_, descriptor_.get())) return true;
    descriptor_.reset();
    return lock == FileLock::none;
  }

  /// Those of processes that were killed: nobody else writes now.
  static void remove_temporaries(const std::filesystem::path& packed) {
    const std::filesystem::path folder = packed.has_parent_path() ? packed.parent_path() : ".";
    std::error_code ignored;
    std::vector<std::filesystem::path> old;
    for (std::filesystem::path& entry : folder_entries(folder, ignored))
      if (is_temporary_of(packed, entry.filename().string())) old.push_back(std::move(entry));
    for (const std::filesystem::path& file : old) std::filesystem::remove(file, ignored);
  }

  std::filesystem::path path_;
  FileDescriptor descriptor_;  // none: nothing is locked
};

}  // namespace

std::uint64_t packed_digest(const SampleReader& source, std::string_view recipe, int threads) {
  constexpr std::int64_t kSpread = 32;
  const DatasetFacts facts = source.facts();
  Checksum sum;
  sum.add(recipe);
  add_facts(sum, facts);
  add_names(sum, source, facts.size, threads);
  std::vector<std::vector<std::byte>> fields(facts.targets.size() + 1);
  for (std::int64_t i = 0; i < std::min(kSpread, facts.size); ++i) {
    source.fetch(i * facts.size / std::min(kSpread, facts.size), fields);
    for (const std::vector<std::byte>& field : fields) sum.add(field);
  }
  return sum.value();
}

/// The file's first 64 bytes.
struct PackedFile::Header {
  std::array<char, 8> magic = kMagic;
  std::uint64_t version = kVersion, samples = 0, fields = 0, digest = 0, file_bytes = 0, reserved = 0;
  std::uint64_t checksum = 0;  // of what is before it

  std::uint64_t sum() const { return checksum_of(bytes_of(*this).first(sizeof(Header) - sizeof(checksum))); }
};

std::uint64_t PackedFile::entry_offset(std::int64_t index, std::size_t fields) {
  return sizeof(Header) + static_cast<std::uint64_t>(index) * fields * sizeof(Entry);
}

/// A new file under a temporary name: it appears at `path` by `commit`.
class PackedFile::Writer {
 public:
  Writer(const SampleReader& source, const std::filesystem::path& path, const PackOptions& options)
      : source_(source), path_(path), options_(options), facts_(source.facts()), fields_(facts_.fields()) {
    static_assert(sizeof(Header) == 64);
    std::random_device random;
    temporary_ = path;
    temporary_.replace_filename(temporary_name(path, random()));
    descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail(errno);
  }
  ~Writer() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Fetches and writes all samples and the table.
  void write(std::uint64_t digest) {
    end_ = entry_offset(facts_.size, fields_.size());
    parallel_ranges(facts_.size, kGrain, options_.threads, [this](std::int64_t begin, std::int64_t end) {
      std::vector<std::vector<std::byte>> sample(fields_.size());
      std::vector<Entry> entries;
      for (std::int64_t i = begin; i < end; ++i) write_sample(i, sample, entries);
      write_at(entry_offset(begin, fields_.size()), std::as_bytes(std::span(entries)));
      note(end - begin);
    });
    Header header{.samples = static_cast<std::uint64_t>(facts_.size), .fields = fields_.size(), .digest = digest};
    header.file_bytes = end_;
    header.checksum = header.sum();
    write_at(0, bytes_of(header));
  }

  /// The file's descriptor, now the caller's: another run may put its own file at `path` at any moment.
  int commit() {
    if (::fsync(descriptor_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
    sync_folder(path_.has_parent_path() ? path_.parent_path() : std::filesystem::path("."));
    return std::exchange(descriptor_, -1);
  }

 private:
  void write_sample(std::int64_t index, std::vector<std::vector<std::byte>>& sample, std::vector<Entry>& entries) {
    try {
      source_.fetch(index, sample);
    } catch (const DataError& error) {
      if (!options_.keeps_broken) throw;
      return write_broken(std::string_view(error.what()).substr(0, kLongestMessage), entries);
    }
    std::uint64_t bytes = 0;
    for (const std::vector<std::byte>& field : sample) bytes += field.size();
    std::uint64_t offset = end_.fetch_add(bytes);
    for (std::size_t f = 0; f < fields_.size(); ++f) {
      write_at(offset, sample[f]);
      entries.push_back({offset, sample[f].size(), checksum_of(sample[f])});
      offset += sample[f].size();
    }
  }

  /// All fields' entries are the message's. Its checksum is another than that of a field with these bytes, so that a
  /// damaged offset makes neither of the other.
  void write_broken(std::string_view message, std::vector<Entry>& entries) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(message));
    const std::uint64_t offset = end_.fetch_add(bytes.size());
    write_at(offset, bytes);
    entries.insert(entries.end(), fields_.size(), {offset | kBroken, bytes.size(), ~checksum_of(bytes)});
  }

  void note(std::int64_t samples) {
    const std::scoped_lock lock(noting_);
    written_ += samples;
    if (options_.on_read) options_.on_read(written_, facts_.size);
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(errno);
      offset += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  [[noreturn]] void fail(int reason) const {
    const std::uint64_t bytes =
        std::max(source_.total_encoded_bytes(), static_cast<std::uint64_t>(facts_.size) * facts_.sample_bytes());
    throw DataError(
        fmt::format("cannot write {}: {} (the packed samples need about {}; cache: {{disk: PATH}} names "
                    "another place)",
                    path_.string(), reason_text(reason), format_byte_size(bytes)));
  }

  const SampleReader& source_;
  const std::filesystem::path& path_;
  const PackOptions& options_;
  const DatasetFacts facts_;
  const std::vector<SampleField> fields_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::atomic<std::uint64_t> end_ = 0;
  std::mutex noting_;
  std::int64_t written_ = 0;
};

PackedFile::PackedFile(std::shared_ptr<const SampleReader> source, std::filesystem::path path)
    : WrappedReader(std::move(source)), facts_(inner().facts()), fields_(facts_.fields()), path_(std::move(path)) {}

PackedFile::~PackedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::shared_ptr<const PackedFile> PackedFile::open(std::shared_ptr<const SampleReader> source,
                                                   const std::filesystem::path& path, const PackOptions& options) {
  if (path.filename().empty()) throw DataError(fmt::format("cannot write '{}': it names no file", path.string()));
  const std::shared_ptr<const SampleReader> digested = options.keeps_broken ? fetched_or_empty(source) : source;
  const std::uint64_t digest = packed_digest(*digested, options.recipe, options.threads);
  std::shared_ptr<PackedFile> file(new PackedFile(std::move(source), path));
  std::string replaced;
  if (file->open_existing(digest, replaced)) return file;
  const PackingLock lock(
      path,
      [&] {
        if (options.on_read) options.on_read(0, file->facts_.size);
      },
      options.on_no_locks);
  replaced.clear();
  if (file->open_existing(digest, replaced)) return file;  // another process has written it meanwhile
  if (!replaced.empty() && options.on_replace) options.on_replace(replaced);
  Writer writer(file->inner(), path, options);
  writer.write(digest);
  file->descriptor_ = writer.commit();
  file->is_new_ = true;
  const std::string reason = file->why_not(digest);
  if (!reason.empty()) throw DataError(fmt::format("cannot use {}, just written: {}", path.string(), reason));
  return file;
}

/// Whether there is a file that can be used; `reason` for which one that is there cannot.
bool PackedFile::open_existing(std::uint64_t digest, std::string& reason) {
  descriptor_ = open_file({.path = path_}, O_RDONLY).release();
  if (descriptor_ < 0) return false;
  reason = why_not(digest);
  if (reason.empty()) return true;
  ::close(std::exchange(descriptor_, -1));
  return false;
}

/// Checks the open file and returns the reason why it cannot be used; empty where it can.
std::string PackedFile::why_not(std::uint64_t digest) {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0)
    throw DataError(fmt::format("cannot read {}: {}", path_.string(), reason_text(errno)));
  file_bytes_ = static_cast<std::uint64_t>(status.st_size);
  Header header{.magic = {}};
  if (S_ISREG(status.st_mode) && file_bytes_ >= sizeof(Header))
    read_at(0, std::as_writable_bytes(std::span(&header, 1)));
  if (header.magic != kMagic)
    throw DataError(
        fmt::format("{} is no file of packed samples; it is not replaced: remove it, or name another place "
                    "with cache: {{disk: PATH}}",
                    path_.string()));
  if (header.version != kVersion) return fmt::format("its version is {}, not {}", header.version, kVersion);
  if (header.checksum != header.sum()) return "its header is damaged";
  if (header.digest != digest || header.fields != fields_.size() ||
      header.samples != static_cast<std::uint64_t>(facts_.size))
    return "it was made of other samples, or by other stages";
  if (file_bytes_ != header.file_bytes)
    return fmt::format("it has {} bytes, not {} as its header says", file_bytes_, header.file_bytes);
  return {};
}

void PackedFile::fail(std::int64_t index, std::string_view what) const {
  throw DataError(fmt::format("{}: packed sample {} ({}) {}; remove the file, and the next run writes it from the data",
                              path_.string(), index, printable_line(inner().name_of(index)), what));
}

void PackedFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw DataError(fmt::format("cannot read {} at byte {}: {}", path_.string(), offset,
                                  got < 0 ? reason_text(errno) : "the file ends there"));
    offset += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
}

/// Reads the table's entries for the sample's fields from `first_field` on; valid until this thread's next call.
std::span<const PackedFile::Entry> PackedFile::entries(std::int64_t index, std::size_t first_field) const {
  thread_local std::vector<Entry> row;
  row.resize(fields_.size() - first_field);
  read_at(entry_offset(index, fields_.size()) + first_field * sizeof(Entry), std::as_writable_bytes(std::span(row)));
  if (!row.empty() && (row[0].offset & kBroken) != 0) fail_as_written(index, row[0]);
  for (const Entry& entry : row)
    if (entry.offset > file_bytes_ || entry.bytes > file_bytes_ - entry.offset)
      fail(index, "has a damaged entry in the file's table");
  return row;
}

/// A sample that could not be read when the file was written: what the source threw then.
void PackedFile::fail_as_written(std::int64_t index, const Entry& entry) const {
  const std::uint64_t offset = entry.offset & ~kBroken;
  if (entry.bytes > kLongestMessage || offset > file_bytes_ || entry.bytes > file_bytes_ - offset)
    fail(index, "has a damaged entry in the file's table");
  std::string message(entry.bytes, ' ');
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(message));
  read_at(offset, bytes);
  if (~checksum_of(bytes) != entry.checksum) fail(index, "is damaged: its checksum differs");
  throw DataError(fmt::format("{} (when {} was written)", message, path_.string()));
}

void PackedFile::read_field(std::int64_t index, const Entry& entry, std::span<std::byte> to) const {
  if (to.size() != entry.bytes) fail(index, fmt::format("has {} bytes, not {}", entry.bytes, to.size()));
  read_at(entry.offset, to);
  if (checksum_of(to) != entry.checksum) fail(index, "is damaged: its checksum differs");
}

void PackedFile::read(std::int64_t index, std::span<const std::span<std::byte>> fields) const {
  const std::span<const Entry> row = entries(index, 0);
  for (std::size_t f = 0; f < row.size(); ++f) read_field(index, row[f], fields[f]);
}

void PackedFile::fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const {
  const std::span<const Entry> row = entries(index, 0);
  for (std::size_t f = 0; f < row.size(); ++f) {
    fields[f].resize(row[f].bytes);
    read_field(index, row[f], fields[f]);
  }
}

void PackedFile::read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const {
  if (targets.empty()) return;
  const std::span<const Entry> row = entries(index, 1);
  for (std::size_t t = 0; t < targets.size(); ++t)
    if (!targets[t].empty()) read_field(index, row[t], targets[t]);
}

}  // namespace bantam
