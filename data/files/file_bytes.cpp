// Files in place, by pread, and compressed ones, decompressed as far as they are needed: .gz by zlib, others by
// libarchive.
#include "bantam/data/files/file_bytes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kInflatedAtOnce = std::int64_t{1} << 20;  // bytes

class PlainBytes : public FileBytes {
 public:
  explicit PlainBytes(const fs::path& path)
      : FileBytes(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) fail(std::strerror(errno));
  }
  ~PlainBytes() override { ::close(descriptor_); }

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
    throw DataError(fmt::format("{}: cannot be read: {}", name(), reason));
  }
  int descriptor_;
};

class MemoryBytes : public FileBytes {
 public:
  MemoryBytes(std::string name, std::vector<std::uint8_t> bytes)
      : FileBytes(std::move(name)), bytes_(std::move(bytes)) {}

  std::int64_t size() const override { return std::ssize(bytes_); }
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) const override {
    check_range(offset, bytes.size());
    std::memcpy(bytes.data(), bytes_.data() + offset, bytes.size());
  }
  bool in_memory() const override { return true; }

 protected:
  std::vector<std::uint8_t> bytes_;
};

class WindowBytes : public FileBytes {
 public:
  WindowBytes(std::string name, std::shared_ptr<const FileBytes> file, std::int64_t offset, std::int64_t size)
      : FileBytes(std::move(name)), file_(std::move(file)), offset_(offset), size_(size) {}

  std::int64_t size() const override { return size_; }
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) const override {
    check_range(offset, bytes.size());
    file_->read(offset_ + offset, bytes);
  }

 private:
  std::shared_ptr<const FileBytes> file_;
  std::int64_t offset_, size_;
};

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(const fs::path& path) : path_(path.string()), file_(::gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) fail(std::strerror(errno));
  }
  std::size_t read(std::span<std::uint8_t> bytes) override {
    const auto wanted = static_cast<unsigned>(std::min<std::size_t>(bytes.size(), kInflatedAtOnce));
    const int got = ::gzread(file_.get(), bytes.data(), wanted);
    int code = Z_OK;  // a file that is cut short yields bytes, with an error beside them
    std::string_view message = ::gzerror(file_.get(), &code);
    if (message.starts_with(path_ + ": ")) message.remove_prefix(path_.size() + 2);
    done_ += std::max(got, 0);
    if (got < 0 || code == Z_BUF_ERROR)
      fail(fmt::format("{}, after {} decompressed bytes", code == Z_ERRNO ? std::strerror(errno) : message,
                       format_count(done_)));
    return static_cast<std::size_t>(got);
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { ::gzclose(file); }
  };
  [[noreturn]] void fail(const std::string& reason) const {
    throw DataError(fmt::format("{}: cannot be decompressed: {}", path_, reason));
  }
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::int64_t done_ = 0;
};

/// One file compressed by xz, bzip2 or zstd.
class FilteredStream : public ByteStream {
 public:
  explicit FilteredStream(const fs::path& path) : path_(path.string()), archive_(::archive_read_new()) {
    archive* a = archive_.get();
    ::archive_read_support_filter_xz(a);
    ::archive_read_support_filter_bzip2(a);
    ::archive_read_support_filter_zstd(a);
    ::archive_read_support_format_raw(a);
    archive_entry* entry = nullptr;
    if (::archive_read_open_filename(a, path.c_str(), kInflatedAtOnce / 16) != ARCHIVE_OK ||
        ::archive_read_next_header(a, &entry) != ARCHIVE_OK)
      fail();
  }
  std::size_t read(std::span<std::uint8_t> bytes) override {
    const la_ssize_t got = ::archive_read_data(archive_.get(), bytes.data(), bytes.size());
    if (got < 0) fail();
    done_ += got;
    return static_cast<std::size_t>(got);
  }

 private:
  struct Free {
    void operator()(archive* a) const { ::archive_read_free(a); }
  };
  [[noreturn]] void fail() const {
    const char* reason = ::archive_error_string(archive_.get());
    throw DataError(fmt::format("{}: cannot be decompressed: {}, after {} decompressed bytes", path_,
                                reason != nullptr ? reason : "it is damaged", format_count(done_)));
  }
  std::string path_;
  std::unique_ptr<archive, Free> archive_;
  std::int64_t done_ = 0;
};

class StreamedBytes : public MemoryBytes {
 public:
  StreamedBytes(const FileBytes& compressed, std::unique_ptr<ByteStream> stream)
      : MemoryBytes(compressed.name(), {}), stream_(std::move(stream)), most_(most_decompressed(compressed.size())) {}

  void fetch(std::int64_t bytes) override {
    // Memory of all that may come is reserved at once: it is used only as far as it is written.
    if (stream_ != nullptr) bytes_.reserve(static_cast<std::size_t>(std::min(bytes, most_ + kInflatedAtOnce)));
    while (stream_ != nullptr && size() < bytes) {
      const std::size_t before = bytes_.size();
      bytes_.resize(before + static_cast<std::size_t>(std::min(kInflatedAtOnce, bytes - size())));
      const std::size_t got = stream_->read(std::span(bytes_).subspan(before));
      bytes_.resize(before + got);
      if (size() > most_) fail_inflated(name(), most_);
      if (got != 0) continue;
      stream_.reset();
    }
  }

 private:
  std::unique_ptr<ByteStream> stream_;  // null at its end
  std::int64_t most_;
};

enum class Compression : std::uint8_t { none, gzip, filter };

/// By the file's first bytes.
Compression compression_of(const FileBytes& file) {
  using namespace std::string_view_literals;
  constexpr std::array kFilters = {
      "\xfd"
      "7zXZ\0"sv,
      "BZh"sv, "\x28\xb5\x2f\xfd"sv};
  std::array<std::uint8_t, 6> begin = {};
  const std::int64_t count = std::min<std::int64_t>(file.size(), std::ssize(begin));
  file.read(0, std::span(begin).first(static_cast<std::size_t>(count)));
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  if (text.starts_with("\x1f\x8b"sv)) return Compression::gzip;
  const bool filtered = std::ranges::any_of(kFilters, [&](std::string_view magic) { return text.starts_with(magic); });
  return filtered ? Compression::filter : Compression::none;
}

}  // namespace

void FileBytes::check_range(std::int64_t offset, std::size_t count) const {
  if (offset > size() || std::cmp_greater(count, size() - offset))
    throw DataError(
        fmt::format("{}: cannot be read: it ends before byte {}", name(), static_cast<std::uint64_t>(offset) + count));
}

std::int64_t most_decompressed(std::int64_t compressed) {
  constexpr std::int64_t kAnyFile = std::int64_t{128} << 20, kMostRatio = 100;
  return kAnyFile + kMostRatio * compressed;
}

void fail_inflated(const std::string& name, std::int64_t most) {
  throw DataError(
      fmt::format("{}: has more than {} decompressed bytes, the most that are held in memory for a file of its "
                  "size: decompress it, and name the file that comes of it",
                  name, format_count(most)));
}

std::unique_ptr<FileBytes> open_plain_bytes(const fs::path& path) { return std::make_unique<PlainBytes>(path); }

std::unique_ptr<FileBytes> open_file_bytes(const fs::path& path) {
  auto plain = open_plain_bytes(path);
  const Compression compression = compression_of(*plain);
  if (compression == Compression::none) return plain;
  if (compression == Compression::gzip) return std::make_unique<StreamedBytes>(*plain, open_gzip_stream(path));
  return std::make_unique<StreamedBytes>(*plain, std::make_unique<FilteredStream>(path));
}

std::unique_ptr<FileBytes> window_bytes(std::string name, std::shared_ptr<const FileBytes> file, std::int64_t offset,
                                        std::int64_t size) {
  return std::make_unique<WindowBytes>(std::move(name), std::move(file), offset, size);
}

std::unique_ptr<FileBytes> memory_bytes(std::string name, std::vector<std::uint8_t> bytes) {
  return std::make_unique<MemoryBytes>(std::move(name), std::move(bytes));
}

std::unique_ptr<ByteStream> open_gzip_stream(const fs::path& path) { return std::make_unique<GzipStream>(path); }

}  // namespace bantam
