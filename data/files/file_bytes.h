// FileBytes: what a file holds, read at any place: in place where it is plain, from memory where it is compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bantam {

/// A file's bytes. `fetch` is called by one thread at a time; then any thread may read at any place of what is fetched.
/// All functions throw DataError that begins with the name.
class FileBytes {
 public:
  explicit FileBytes(std::string name) : name_(std::move(name)) {}
  virtual ~FileBytes() = default;
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  /// The file's path, for messages; with the member's name where it is part of an archive.
  const std::string& name() const { return name_; }
  /// Makes the first `bytes` readable, or all where there are fewer.
  virtual void fetch(std::int64_t bytes) { (void)bytes; }
  /// Counts the bytes of the file, or of the part of it that is fetched.
  virtual std::int64_t size() const = 0;
  /// Fills `bytes` from `offset` on. Throws also where the file ends before.
  virtual void read(std::int64_t offset, std::span<std::uint8_t> bytes) const = 0;
  /// Whether fetched bytes lie in memory of the object's own.
  virtual bool in_memory() const { return false; }

 protected:
  /// Throws unless [offset, offset + count) lies within `size()`.
  void check_range(std::int64_t offset, std::size_t count) const;

 private:
  std::string name_;
};

/// The file, decompressed where it begins as a .gz, .xz, .bz2 or .zst file does: then `fetch` decompresses into memory,
/// at most `most_decompressed` bytes, and compares checksums at the end.
std::unique_ptr<FileBytes> open_file_bytes(const std::filesystem::path& path);

/// The file as it is stored.
std::unique_ptr<FileBytes> open_plain_bytes(const std::filesystem::path& path);

/// `size` bytes of `file` from `offset` on.
std::unique_ptr<FileBytes> window_bytes(std::string name, std::shared_ptr<const FileBytes> file, std::int64_t offset,
                                        std::int64_t size);

/// How many bytes may be made of so many compressed ones, in memory: 128 MiB and 100 times as many, since masks
/// of few classes shrink to a hundredth.
std::int64_t most_decompressed(std::int64_t compressed);
[[noreturn]] void fail_inflated(const std::string& name, std::int64_t most);

/// Bytes that lie in memory already.
std::unique_ptr<FileBytes> memory_bytes(std::string name, std::vector<std::uint8_t> bytes);

/// A file as `read_compressed` reads it.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills some of `bytes`; returns how many, 0 at the end. Throws DataError.
  virtual std::size_t read(std::span<std::uint8_t> bytes) = 0;
};

/// The decompressed bytes of a .gz file, or those of any other file as they are.
std::unique_ptr<ByteStream> open_gzip_stream(const std::filesystem::path& path);

}  // namespace bantam
