// Name by name from the folder on, each opened without following a link, and the last one looked at before and after.
#include "bantam/base/folder_file.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, std::string_view reason, std::string_view what = "use") {
  throw DataError(fmt::format("cannot {} {}: {}", what, printable_line(path.string()), reason));
}

[[noreturn]] void fail_with_kind(const fs::path& path, const std::string& kind, std::string_view expected) {
  fail(path,
       fmt::format("it is {}, expected {}; nothing outside of the folder is read or written: put {} itself there, "
                   "or remove it",
                   kind, expected, expected));
}

/// "a symbolic link"; empty: a regular file.
std::string kind_of(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

/// The trusted folder, and the names below it.
struct Way {
  fs::path begin;
  std::vector<std::string> names;
};

Way way_to(const FolderFile& file) {
  Way way{.begin = file.path.has_filename() ? file.path : file.path.parent_path(), .names = {}};
  for (int i = 0; i < file.names; ++i) {
    way.names.insert(way.names.begin(), way.begin.filename().string());
    way.begin = way.begin.parent_path();
  }
  if (way.begin.empty()) way.begin = ".";
  return way;
}

FileDescriptor open_next(int folder, const std::string& name, int flags) {
  for (;;) {
    FileDescriptor opened(::openat(folder, name.c_str(), flags | O_CLOEXEC, 0644));
    if (opened || errno != EINTR) return opened;
  }
}

/// Empty, with errno, where a folder is not there; throws for links and what is no folder.
FileDescriptor walk(const FolderFile& file, const Way& way) {
  FileDescriptor folder = open_next(AT_FDCWD, way.begin.string(), O_PATH | O_DIRECTORY);
  fs::path at = way.begin;
  for (std::size_t i = 0; folder && i + 1 < way.names.size(); ++i) {
    at /= way.names[i];
    FileDescriptor next = open_next(folder.get(), way.names[i], O_PATH | O_DIRECTORY | O_NOFOLLOW);
    struct stat facts {};
    if (!next && (errno == ENOTDIR || errno == ELOOP) &&
        ::fstatat(folder.get(), way.names[i].c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0)
      fail_with_kind(at, S_ISREG(facts.st_mode) ? "a file" : kind_of(facts.st_mode), "a folder");
    folder = std::move(next);
  }
  if (!folder && errno != ENOENT && errno != ENOTDIR) fail(file.path, reason_text(errno));
  return folder;
}

/// Reads on until `to` is full or the file ends.
std::size_t read_part(const fs::path& path, int descriptor, std::span<char> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::read(descriptor, to.data() + done, to.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, reason_text(errno), "read");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

constexpr std::size_t kPart = std::size_t{1} << 18;

}  // namespace

FileDescriptor open_folder_of(const FolderFile& file) {
  FileDescriptor folder = walk(file, way_to(file));
  if (!folder) fail(file.path, "its folder is not there");
  return folder;
}

std::string what_else_is_at(const FolderFile& file) {
  const Way way = way_to(file);
  const FileDescriptor folder = walk(file, way);
  struct stat facts {};
  if (!folder || ::fstatat(folder.get(), way.names.back().c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) return "";
  return kind_of(facts.st_mode);
}

FileDescriptor open_file(const FolderFile& file, int flags) {
  const Way way = way_to(file);
  const FileDescriptor folder = walk(file, way);
  if (!folder) return {};
  struct stat facts {};
  if (::fstatat(folder.get(), way.names.back().c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(facts.st_mode))
    fail_with_kind(file.path, kind_of(facts.st_mode), "a regular file");  // a device is not even opened
  FileDescriptor opened = open_next(folder.get(), way.names.back(), flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (!opened && errno == ENOENT) return {};
  if (!opened) fail(file.path, reason_text(errno), "open");
  if (::fstat(opened.get(), &facts) != 0) fail(file.path, reason_text(errno));
  if (!S_ISREG(facts.st_mode)) fail_with_kind(file.path, kind_of(facts.st_mode), "a regular file");
  return opened;
}

bool leads_to(const fs::path& path, int descriptor) {
  struct stat open {
  }, there{};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &there) == 0 && open.st_dev == there.st_dev &&
         open.st_ino == there.st_ino;
}

void require_no_links(const FolderFile& folder) { (void)walk(folder, way_to({folder.path / ".", folder.names + 1})); }

std::string read_file(const FolderFile& file, std::uint64_t most_bytes) {
  const FileDescriptor opened = open_file(file, O_RDONLY);
  if (!opened) fail(file.path, reason_text(ENOENT), "read");
  struct stat facts {};
  if (::fstat(opened.get(), &facts) != 0) fail(file.path, reason_text(errno));
  const auto require_size = [&](std::uint64_t bytes) {
    if (bytes > most_bytes)
      fail(file.path,
           fmt::format("it is larger than the {} bytes that such a file may have",
                       format_count(static_cast<std::int64_t>(most_bytes))),
           "read");
  };
  require_size(static_cast<std::uint64_t>(facts.st_size));
  std::string text;
  std::size_t used = 0;
  for (std::size_t part = static_cast<std::size_t>(facts.st_size) + 1;; part = kPart) {  // it may grow meanwhile
    text.resize(used + part);
    const std::size_t got = read_part(file.path, opened.get(), std::span(text).subspan(used));
    used += got;
    require_size(used);
    if (got < part) break;
  }
  text.resize(used);
  return text;
}

bool read_parts(const FolderFile& file, std::uint64_t from, const std::function<bool(std::string_view part)>& use) {
  const FileDescriptor opened = open_file(file, O_RDONLY);
  if (!opened) return false;
  if (::lseek(opened.get(), static_cast<off_t>(from), SEEK_SET) < 0) fail(file.path, reason_text(errno));
  std::string part(kPart, '\0');
  for (std::size_t got = part.size(); got == part.size();) {
    got = read_part(file.path, opened.get(), part);
    if (got > 0 && !use(std::string_view(part).substr(0, got))) return true;
  }
  return true;
}

bool read_lines(const FolderFile& file, std::uint64_t from, const std::function<bool(const FileLine&)>& use) {
  std::string text;  // without an end so far
  FileLine line{.text = {}, .number = 1, .offset = from};
  bool goes_on = true;
  const bool is_there = read_parts(file, from, [&](std::string_view part) {
    const std::size_t old = text.size();
    text += part;
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n', old); goes_on && end != std::string::npos; end = text.find('\n', begin)) {
      line.text = std::string_view(text).substr(begin, end - begin);
      goes_on = use(line);
      ++line.number;
      line.offset += end + 1 - begin;
      begin = end + 1;
    }
    text.erase(0, begin);
    return goes_on;
  });
  line.text = text;
  line.is_whole = false;
  if (goes_on && !text.empty()) (void)use(line);
  return is_there;
}

RunningSum sum_of(const FolderFile& file, std::uint64_t most) {
  RunningSum sum;
  (void)read_parts(file, 0, [&](std::string_view part) {
    sum.add(part.substr(0, std::min<std::uint64_t>(part.size(), most - sum.bytes())));
    return sum.bytes() < most;
  });
  return sum;
}

}  // namespace bantam
