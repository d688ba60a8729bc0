// PackedFile: the stored bytes of all samples of a split in one file, from which a run reads them in place
// (`cache: disk`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/data/formats/dataset.h"

namespace bantam {

/// How a packed file is made.
struct PackOptions {
  int threads = 1;
  /// Whatever decides the bytes of samples and does not show in the reader's facts, as the stages that it applies.
  std::string recipe = {};
  /// A sample whose fetching throws DataError is stored as the error's message, and each read of it throws that; else
  /// the error ends the writing. The recipe says so, too: without it there is to be no such file.
  bool keeps_broken = false;
  /// Reports progress. An exception from it ends the writing, and no file remains. While another process writes the
  /// file, it is called with 0 samples several times a second, and an exception ends the waiting.
  OnSamplesRead on_read = {};
  /// Called before writing begins where a file was there already, with the reason for which it is replaced.
  std::function<void(std::string_view reason)> on_replace = {};
  /// Called where the file system has no locks, once a process.
  std::function<void(std::string_view text)> on_no_locks = {};
};

/// A digest of what a packed file is made of: the reader's facts, every sample's name, size and time of change of its
/// files (SampleReader::files_of), the bytes of 32 samples spread over the split, and `recipe`. Other samples of a
/// reader without files may change without it.
std::uint64_t packed_digest(const SampleReader& source, std::string_view recipe, int threads);

/// A reader of a packed file. A read is one system call for the sample's entries of the table and one a field; neither
/// samples nor table lie in memory. Every field has a checksum (bantam::Checksum), which each read verifies.
///
/// The file has a header (64 bytes: magic, version, counts, digest, its size, checksum), a table of each field's place,
/// size and checksum, and the samples' bytes in the order in which threads wrote them; in the place of a broken sample
/// a message, with the highest bit of its offset set. Numbers are little-endian.
class PackedFile : public WrappedReader {
 public:
  /// Opens the packed file at `path`, whose folder must be there; writes it first where there is none, and where the
  /// one that is there was made of other samples (another digest), by another version, or was cut short. A new file
  /// appears whole or not at all. The source's samples are fetched by several threads, each once, and not again. Of
  /// several processes or threads that open one path at once, one writes and the others wait for its file; whoever
  /// writes removes what killed ones have left. That needs flock: where the file system has none, each writes.
  /// Throws DataError: what the source throws, the system's reason (disk full, …), and where `path` is a file of
  /// another kind, which is not replaced.
  static std::shared_ptr<const PackedFile> open(std::shared_ptr<const SampleReader> source,
                                                const std::filesystem::path& path, const PackOptions& options);
  ~PackedFile() override;
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  DatasetFacts facts() const override { return facts_; }
  /// Throws DataError that names file and sample where bytes are not those that were written; what the source threw
  /// where the file keeps a broken sample.
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override;
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override;
  /// Reads nothing of the images.
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override;

  std::uint64_t file_bytes() const { return file_bytes_; }
  /// Whether `open` wrote the file.
  bool is_new() const { return is_new_; }

 private:
  struct Header;
  /// Where a field of a sample lies.
  struct Entry {
    std::uint64_t offset = 0, bytes = 0, checksum = 0;
  };
  class Writer;
  static std::uint64_t entry_offset(std::int64_t index, std::size_t fields);

  PackedFile(std::shared_ptr<const SampleReader> source, std::filesystem::path path);
  bool open_existing(std::uint64_t digest, std::string& reason);
  std::string why_not(std::uint64_t digest);
  std::span<const Entry> entries(std::int64_t index, std::size_t first_field) const;
  void read_at(std::uint64_t offset, std::span<std::byte> to) const;
  void read_field(std::int64_t index, const Entry& entry, std::span<std::byte> to) const;
  [[noreturn]] void fail(std::int64_t index, std::string_view what) const;
  [[noreturn]] void fail_as_written(std::int64_t index, const Entry& entry) const;

  DatasetFacts facts_;
  std::vector<SampleField> fields_;
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t file_bytes_ = 0;
  bool is_new_ = false;
};

}  // namespace bantam
