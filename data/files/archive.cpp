// Tar archives through libarchive, which gets a .gz file's bytes from zlib: that compares checksums.
#include "bantam/data/files/archive.h"

#include <cerrno>
#include <memory>

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/files/file_bytes.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

struct Free {
  void operator()(archive* a) const { ::archive_read_free(a); }
};

/// The archive's bytes for libarchive's callback. Exceptions must not pass through its C functions.
struct Source {
  explicit Source(const fs::path& path) : stream(open_gzip_stream(path)), buffer(std::size_t{1} << 16) {}

  static la_ssize_t read(archive* a, void* self, const void** bytes) {
    auto& source = *static_cast<Source*>(self);
    try {
      *bytes = source.buffer.data();
      return static_cast<la_ssize_t>(source.stream->read(source.buffer));
    } catch (const Error& error) {
      source.failure = error.what();
      ::archive_set_error(a, EIO, "%s", "its bytes cannot be read");
      return -1;
    }
  }

  std::unique_ptr<ByteStream> stream;
  std::vector<std::uint8_t> buffer;
  std::string failure;
};

class TarReader {
 public:
  explicit TarReader(const fs::path& path) : path_(path.string()), source_(path), archive_(::archive_read_new()) {
    archive* a = archive_.get();
    ::archive_read_support_filter_xz(a);
    ::archive_read_support_filter_bzip2(a);
    ::archive_read_support_filter_zstd(a);
    ::archive_read_support_format_tar(a);
    if (::archive_read_open(a, &source_, nullptr, Source::read, nullptr) != ARCHIVE_OK) fail();
  }

  /// The next member's name, "" at the end.
  std::string next() {
    archive_entry* entry = nullptr;
    const int code = ::archive_read_next_header(archive_.get(), &entry);
    if (code == ARCHIVE_EOF) return "";
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN) fail();
    size_ = ::archive_entry_size(entry);
    // Members that are passed over are decompressed as well.
    passed_ += size_;
    if (passed_ > kMostPassed)
      throw DataError(fmt::format("{}: has members of more than {} bytes; the archives that are read here have fewer",
                                  path_, format_count(kMostPassed)));
    const char* name = ::archive_entry_pathname(entry);
    is_file_ = ::archive_entry_filetype(entry) == AE_IFREG;
    return name != nullptr && *name != '\0' ? name : "?";
  }
  bool is_file() const { return is_file_; }
  std::vector<std::uint8_t> read(const std::string& member, std::int64_t most_bytes) {
    const auto fail_large = [&] {
      throw DataError(fmt::format("{}({}): has more than {} bytes", path_, shown(member), format_count(most_bytes)));
    };
    if (size_ > most_bytes) fail_large();
    std::vector<std::uint8_t> bytes, some(std::size_t{1} << 18);
    bytes.reserve(static_cast<std::size_t>(size_));
    for (;;) {
      const la_ssize_t got = ::archive_read_data(archive_.get(), some.data(), some.size());
      if (got < 0) fail();
      if (got == 0) return bytes;
      bytes.insert(bytes.end(), some.begin(), some.begin() + got);
      if (std::ssize(bytes) > most_bytes) fail_large();
    }
  }

 private:
  static constexpr std::int64_t kMostPassed = std::int64_t{1} << 30;

  [[noreturn]] void fail() const {
    if (!source_.failure.empty()) throw DataError(source_.failure);
    const char* reason = ::archive_error_string(archive_.get());
    throw DataError(fmt::format("{}: is no tar archive that can be read: {}", path_,
                                reason != nullptr ? shown(reason) : "it is damaged"));
  }

  std::string path_;
  Source source_;
  std::unique_ptr<archive, Free> archive_;
  bool is_file_ = false;
  std::int64_t size_ = 0, passed_ = 0;  // of the member, and of all up to it
};

}  // namespace

std::map<std::string, std::vector<std::uint8_t>> read_members(const fs::path& archive,
                                                              const std::set<std::string>& wanted,
                                                              std::int64_t most_bytes) {
  std::map<std::string, std::vector<std::uint8_t>> members;
  TarReader reader(archive);
  for (std::string name = reader.next(); !name.empty() && members.size() < wanted.size(); name = reader.next()) {
    const std::string last = name.substr(name.rfind('/') + 1);
    if (!reader.is_file() || !wanted.contains(last)) continue;
    if (members.contains(last)) throw DataError(fmt::format("{}: has two members {}", archive.string(), last));
    const std::vector<std::uint8_t>& bytes = members[last] = reader.read(name, most_bytes);
    most_bytes -= std::ssize(bytes);
  }
  return members;
}

}  // namespace bantam
