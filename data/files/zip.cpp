// The central directory of a zip archive, and members through zlib. Source: PKWARE, "APPNOTE.TXT", sections 4.3 to 4.5.
#include "bantam/data/files/zip.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <zlib.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

constexpr std::uint32_t kEndMagic = 0x06054b50, kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50;
constexpr std::uint32_t kEntryMagic = 0x02014b50, kLocalMagic = 0x04034b50;
constexpr std::int64_t kEndBytes = 22, kLocator64Bytes = 20, kEnd64Bytes = 56, kEntryBytes = 46, kLocalBytes = 30;
constexpr std::int64_t kMostComment = 0xffff;
constexpr std::uint64_t kIn64 = 0xffffffff;  // a 32-bit field whose value stands in the zip64 fields
constexpr std::uint32_t kStored = 0, kDeflated = 8, kExtra64 = 1, kEncrypted = 1;
constexpr std::int64_t kMostMembers = 1 << 20;

[[noreturn]] void fail(const FileBytes& file, const std::string& what) {
  throw DataError(fmt::format("{}: is no zip archive that can be read: {}", file.name(), what));
}

/// Little-endian numbers of a part of the file.
class Fields {
 public:
  Fields(const FileBytes& file, std::int64_t offset, std::int64_t bytes)
      : file_(file), bytes_(static_cast<std::size_t>(bytes)) {
    if (offset < 0 || offset > file.size() || bytes > file.size() - offset) fail(file, "it is cut short");
    file.read(offset, bytes_);
  }
  std::uint64_t number(std::size_t at, std::size_t bytes) const {
    if (at > bytes_.size() || bytes > bytes_.size() - at) fail(file_, "a field is cut short");
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) value = value << 8 | bytes_[at + i];
    return value;
  }
  std::uint32_t word(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 4)); }
  std::uint32_t half(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 2)); }
  std::string text(std::size_t at, std::size_t bytes) const {
    if (at > bytes_.size() || bytes > bytes_.size() - at) fail(file_, "a name is cut short");
    return {reinterpret_cast<const char*>(bytes_.data()) + at, bytes};
  }

 private:
  const FileBytes& file_;
  std::vector<std::uint8_t> bytes_;
};

/// Where the central directory lies.
struct Directory {
  std::uint64_t members = 0, offset = 0, bytes = 0;
};

/// The end record is the last one; a comment may follow it.
std::int64_t find_end(const FileBytes& file) {
  const std::int64_t size = file.size(), tail = std::min(size, kEndBytes + kMostComment);
  if (size < kEndBytes) fail(file, "it has fewer than 22 bytes");
  const Fields fields(file, size - tail, tail);
  for (std::int64_t at = tail - kEndBytes; at >= 0; --at)
    if (fields.word(static_cast<std::size_t>(at)) == kEndMagic) return size - tail + at;
  fail(file, "it has no central directory (it may be cut short, or another kind of file)");
}

Directory find_directory(const FileBytes& file) {
  const std::int64_t end = find_end(file);
  const Fields fields(file, end, kEndBytes);
  Directory found{fields.half(10), fields.word(16), fields.word(12)};
  const bool is_64 = found.members == 0xffff || found.offset == kIn64 || found.bytes == kIn64;
  if (!is_64) return found;
  const Fields locator(file, end - kLocator64Bytes, kLocator64Bytes);
  if (locator.word(0) != kLocator64Magic) fail(file, "its zip64 locator is missing");
  const std::uint64_t at = locator.number(8, 8);
  if (std::cmp_greater(at, file.size())) fail(file, "its zip64 record lies beyond its end");
  const Fields end64(file, static_cast<std::int64_t>(at), kEnd64Bytes);
  if (end64.word(0) != kEnd64Magic) fail(file, "its zip64 record is missing");
  return {end64.number(32, 8), end64.number(48, 8), end64.number(40, 8)};
}

/// Values of 32-bit fields that do not fit stand in an extra field, in this order.
void read_extra_64(const Fields& fields, std::size_t at, std::size_t bytes, std::array<std::uint64_t*, 3> values) {
  for (const std::size_t end = at + bytes; at + 4 <= end;) {
    const std::size_t size = fields.half(at + 2);
    if (fields.half(at) == kExtra64) {
      std::size_t from = at + 4;
      for (std::uint64_t* value : values) {
        if (*value != kIn64) continue;
        if (from + 8 > at + 4 + size) return;
        *value = fields.number(from, 8);
        from += 8;
      }
      return;
    }
    at += 4 + size;
  }
}

/// A member that is decompressed once, into memory.
class DeflatedBytes : public FileBytes {
 public:
  DeflatedBytes(std::string name, std::unique_ptr<FileBytes> stored, ZipFile::Member member)
      : FileBytes(std::move(name)), stored_(std::move(stored)), member_(member) {
    if (::inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw DataError("zlib cannot begin: no memory");
  }
  ~DeflatedBytes() override { ::inflateEnd(&stream_); }

  void fetch(std::int64_t bytes) override {
    const std::int64_t wanted = std::min(bytes, member_.size), most = most_decompressed(member_.stored);
    if (wanted > most) fail_inflated(name(), most);
    bytes_.reserve(static_cast<std::size_t>(wanted));
    while (size() < wanted) {
      const std::size_t before = bytes_.size();
      bytes_.resize(before + static_cast<std::size_t>(std::min(kAtOnce, wanted - size())));
      bytes_.resize(before + inflate(std::span(bytes_).subspan(before)));
    }
    if (size() == member_.size && !checked_) check_sum();
  }
  std::int64_t size() const override { return std::ssize(bytes_); }
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) const override {
    check_range(offset, bytes.size());
    std::copy_n(bytes_.begin() + offset, bytes.size(), bytes.begin());
  }
  bool in_memory() const override { return true; }

 private:
  static constexpr std::int64_t kAtOnce = std::int64_t{1} << 20;

  [[noreturn]] void fail(const std::string& reason) const {
    throw DataError(fmt::format("{}: cannot be decompressed: {}, after {} decompressed bytes", name(), reason,
                                format_count(static_cast<std::int64_t>(stream_.total_out))));
  }
  /// At least one byte.
  std::size_t inflate(std::span<std::uint8_t> out) {
    stream_.next_out = out.data();
    stream_.avail_out = static_cast<unsigned>(out.size());
    while (stream_.avail_out == out.size()) {
      if (stream_.avail_in == 0 && consumed_ < member_.stored) refill();
      // Without input, too: zlib may still hold what follows from what it has read, as the rest of a long match.
      const int code = ::inflate(&stream_, Z_NO_FLUSH);
      const bool got = stream_.avail_out < out.size();
      if (code == Z_STREAM_END && !got) fail("it ends early");
      if (code == Z_BUF_ERROR) fail("it is cut short");  // neither input nor output is left
      if (code != Z_OK && code != Z_STREAM_END) fail(stream_.msg != nullptr ? stream_.msg : "it is damaged");
    }
    return out.size() - stream_.avail_out;
  }
  void refill() {
    in_.resize(static_cast<std::size_t>(std::min(kAtOnce / 16, member_.stored - consumed_)));
    stored_->read(consumed_, in_);
    consumed_ += std::ssize(in_);
    stream_.next_in = in_.data();
    stream_.avail_in = static_cast<unsigned>(in_.size());
  }
  void check_sum() {
    if (static_cast<std::uint32_t>(::crc32_z(0, bytes_.data(), bytes_.size())) != member_.checksum)
      fail("its checksum is another");
    checked_ = true;
  }

  std::unique_ptr<FileBytes> stored_;
  ZipFile::Member member_;
  z_stream stream_ = {};
  std::vector<std::uint8_t> in_, bytes_;
  std::int64_t consumed_ = 0;
  bool checked_ = false;
};

}  // namespace

ZipFile::ZipFile(const std::filesystem::path& path) : file_(open_plain_bytes(path)) {
  const Directory directory = find_directory(*file_);
  const auto size = static_cast<std::uint64_t>(file_->size());
  if (directory.offset > size || directory.bytes > size - directory.offset)
    fail(*file_, "its central directory lies beyond its end");
  if (directory.members > kMostMembers) fail(*file_, "it has too many members");
  const Fields fields(*file_, static_cast<std::int64_t>(directory.offset), static_cast<std::int64_t>(directory.bytes));
  std::size_t at = 0;
  std::uint64_t all_stored = 0;
  for (std::uint64_t i = 0; i < directory.members; ++i) {
    if (fields.word(at) != kEntryMagic) fail(*file_, fmt::format("entry {} of its directory is damaged", i));
    const std::size_t name = fields.half(at + 28), extra = fields.half(at + 30), comment = fields.half(at + 32);
    std::uint64_t bytes = fields.word(at + 24), stored = fields.word(at + 20), header = fields.word(at + 42);
    read_extra_64(fields, at + kEntryBytes + name, extra, {&bytes, &stored, &header});
    const std::string member = fields.text(at + kEntryBytes, name);
    if ((fields.half(at + 8) & kEncrypted) != 0) fail(*file_, fmt::format("member '{}' is encrypted", shown(member)));
    if (stored > size || header > size || bytes > std::numeric_limits<std::int64_t>::max() / 2)
      fail(*file_, fmt::format("member '{}' lies beyond its end", shown(member)));
    all_stored += stored;
    if (all_stored > size) fail(*file_, "its members overlap: together they are longer than it");
    members_[member] = {fields.half(at + 10), fields.word(at + 16), static_cast<std::int64_t>(stored),
                        static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(header)};
    at += kEntryBytes + name + extra + comment;
  }
}

std::int64_t ZipFile::data_offset(const std::string& name, const Member& member) const {
  const Fields local(*file_, member.header, kLocalBytes);
  if (local.word(0) != kLocalMagic) fail(*file_, fmt::format("member '{}' has no header", shown(name)));
  const Fields local_name(*file_, member.header + kLocalBytes, local.half(26));
  if (local_name.text(0, local.half(26)) != name)
    fail(*file_, fmt::format("member '{}' has another name in its own header", shown(name)));
  const std::int64_t offset = member.header + kLocalBytes + local.half(26) + local.half(28);
  if (offset > file_->size() || member.stored > file_->size() - offset)
    fail(*file_, fmt::format("member '{}' is cut short", shown(name)));
  return offset;
}

std::unique_ptr<FileBytes> ZipFile::open(const std::string& name) const {
  const auto found = members_.find(name);
  if (found == members_.end()) {
    std::vector<std::string> names;
    for (const auto& [member, facts] : members_) names.push_back(shown(member));
    throw DataError(fmt::format("{}: has no member '{}'; it has {}", file_->name(), name,
                                names.empty() ? "none" : join(names, ", ", " and ")));
  }
  const Member& member = found->second;
  const std::string full = fmt::format("{}({})", file_->name(), name);
  const std::int64_t offset = data_offset(name, member);
  auto stored = window_bytes(full, file_, offset, member.stored);
  if (member.method == kStored) {
    if (member.stored != member.size) fail(*file_, fmt::format("member '{}' has two sizes", shown(name)));
    return stored;
  }
  if (member.method != kDeflated)
    fail(*file_, fmt::format("member '{}' is compressed by method {}, neither stored nor deflated", shown(name),
                             member.method));
  return std::make_unique<DeflatedBytes>(full, std::move(stored), member);
}

}  // namespace bantam
