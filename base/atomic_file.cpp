// Write to a temporary file, fsync, rename, fsync the folder: a crash leaves the old file or the new one, never half of
// one. What is no regular file cannot be replaced like that, and is written to as it is.
#include "bantam/base/atomic_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path, int reason) {
  throw DataError(fmt::format("cannot {} {}: {}", what, printable_line(path.string()), reason_text(reason)));
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  return folder.empty() ? std::filesystem::path(".") : folder;
}

/// The number N of a path that is this process's /proc/<pid>/fd/N, as /dev/stdout leads to. What it refers to is
/// already open, with a position that others write on from.
std::optional<int> open_descriptor(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(folder_of(path), error);
  if (error || folder != fmt::format("/proc/{}/fd", ::getpid())) return std::nullopt;
  const std::string name = path.filename().string();
  int number = 0;
  const auto [end, reason] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (reason != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

/// Where a chain of symbolic links ends, whether something is there or not; an open descriptor is an end too.
std::filesystem::path end_of_links(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::error_code error;
  for (int i = 0; std::filesystem::is_symlink(path, error) && !open_descriptor(path); ++i) {
    if (i == kMostLinks) fail("write", path, ELOOP);
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) fail("write", path, error.value());
    path = folder_of(path) / target;  // an absolute target stands alone
  }
  return path;
}

void require_size(const std::filesystem::path& path, std::uint64_t bytes, std::uint64_t most_bytes) {
  if (bytes > most_bytes)
    throw DataError(fmt::format("cannot read {}: it is larger than the {} bytes that such a file may have",
                                path.string(), format_count(static_cast<std::int64_t>(most_bytes))));
}

/// Whether the pipe's last writer has gone, or bytes are there, within that time.
bool pipe_has_news(int descriptor, int milliseconds, bool& ended) {
  pollfd pipe{.fd = descriptor, .events = POLLIN, .revents = 0};
  const bool news = ::poll(&pipe, 1, milliseconds) > 0;
  ended = news && (pipe.revents & POLLIN) == 0;
  return news;
}

/// Reads the next bytes from a descriptor that does not wait by itself; 0 at the end. A read of a FIFO returns nothing
/// both before its first writer has come and after its last one has gone; only the latter is a hangup.
std::size_t read_some(const std::filesystem::path& path, int descriptor, std::span<char> to) {
  constexpr int kWriterWaitMs = 3000;
  struct stat facts {};
  for (int wait = kWriterWaitMs;;) {
    const ssize_t got = ::read(descriptor, to.data(), to.size());
    bool ended = false;
    if (got > 0) return static_cast<std::size_t>(got);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {  // a writer that has not written yet
      (void)pipe_has_news(descriptor, -1, ended);
      continue;
    }
    if (got < 0 || ::fstat(descriptor, &facts) != 0) fail("read", path, errno);
    if (!S_ISFIFO(facts.st_mode)) return 0;
    const bool news = pipe_has_news(descriptor, wait, ended);
    if (ended) return 0;
    if (!news && wait == 0)
      throw DataError(fmt::format("cannot read {}: it is a FIFO that nobody writes to (waited {} s)", path.string(),
                                  kWriterWaitMs / 1000));
    wait = 0;  // a writer that has come and is silent shows in the next read
  }
}

void require_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = folder_of(path);
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return;
  if (error && error.value() != ENOENT && error.value() != ENOTDIR) fail("write", path, error.value());
  throw DataError(fmt::format("cannot write {}: {} {}", path.string(), folder.string(),
                              std::filesystem::exists(folder, error) ? "is no folder" : "does not exist"));
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.filename().empty()) throw DataError(fmt::format("cannot write '{}': it names no file", path_.string()));
  const std::filesystem::path end = end_of_links(path_);
  if (open_as_it_is(end)) return;
  path_ = end;
  require_folder(path_);
  make_temporary();
}

AtomicFile::AtomicFile(const FolderFile& file) : path_(file.path) {
  if (path_.filename().empty()) throw DataError(fmt::format("cannot write '{}': it names no file", path_.string()));
  require_folder(path_);
  folder_ = open_folder_of(file);
  if (const std::string kind = what_else_is_at(file); !kind.empty() && kind != "a symbolic link" && kind != "a folder")
    throw DataError(fmt::format("cannot write {}: it is {}, expected a regular file: remove it", path_.string(), kind));
  make_temporary();
}

/// For calls with `folder_`: the file's name in it, or the whole path.
std::filesystem::path AtomicFile::name_of(const std::filesystem::path& path) const {
  return folder_ ? path.filename() : path;
}

void AtomicFile::make_temporary() {
  std::random_device random;
  const int folder = folder_ ? folder_.get() : AT_FDCWD;
  do {
    temporary_ = folder_of(path_) / temporary_name(path_, random());
    // Mode 0644 is cut by the umask, as for any file a program makes.
    descriptor_ = ::openat(folder, name_of(temporary_).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0) fail("create", std::exchange(temporary_, {}), errno);
  struct stat facts {};
  if (::fstatat(folder, name_of(path_).c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(facts.st_mode) &&
      ::fchmod(descriptor_, facts.st_mode & 07777) != 0)
    fail("set the mode of", temporary_, errno);  // who may read the old file may read the new one, and nobody else
}

/// Opens what is there and is no regular file, or an open descriptor. A folder is left to be refused by the rename.
bool AtomicFile::open_as_it_is(const std::filesystem::path& end) {
  if (const auto number = open_descriptor(end)) {
    descriptor_ = ::fcntl(*number, F_DUPFD_CLOEXEC, 0);
  } else {
    struct stat facts {};
    if (::stat(end.c_str(), &facts) != 0 || S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode)) return false;
    descriptor_ = ::open(end.c_str(), O_WRONLY | O_CLOEXEC);  // of a FIFO it waits for a reader
  }
  if (descriptor_ < 0) fail("write", path_, errno);
  return true;
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlinkat(folder_ ? folder_.get() : AT_FDCWD, name_of(temporary_).c_str(), 0);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) fail("write", path_, EBADF);
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write", path_, errno);
    }
    if (sum_) sum_->add(bytes.first(static_cast<std::size_t>(written)));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::rewrite_beginning(std::string_view text) {
  if (descriptor_ < 0) fail("write", path_, EBADF);
  for (off_t at = 0; !text.empty();) {
    const ssize_t written = ::pwrite(descriptor_, text.data(), text.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == ESPIPE)
      throw DataError(fmt::format("cannot write {}: it is a pipe, and the file's beginning is known at its end",
                                  printable_line(path_.string())));
    if (written < 0) fail("write", path_, errno);
    at += written;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void AtomicFile::commit() {
  if (descriptor_ < 0) fail("write", path_, EBADF);
  // Pipes and devices cannot be synced, and say EINVAL.
  if (::fsync(descriptor_) != 0 && !(temporary_.empty() && errno == EINVAL)) fail("sync", path_, errno);
  const int closed = ::close(std::exchange(descriptor_, -1));
  // After EINTR the descriptor is closed all the same on Linux, and the data is already synced.
  if (closed != 0 && errno != EINTR) fail("close", path_, errno);
  if (temporary_.empty()) return;
  const int folder = folder_ ? folder_.get() : AT_FDCWD;
  if (::renameat(folder, name_of(temporary_).c_str(), folder, name_of(path_).c_str()) != 0) fail("write", path_, errno);
  temporary_.clear();
  sync_folder(folder_of(path_));
}

/// Some file systems cannot sync a folder and say EINVAL: nothing more can be done there.
void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("open folder", folder, errno);
  const int result = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  if (result != 0 && reason != EINVAL && reason != ENOTSUP) fail("sync folder", folder, reason);
}

std::string temporary_name(const std::filesystem::path& file, std::uint32_t number) {
  return fmt::format(".{}.{:08x}.tmp", file.filename().string(), number);
}

bool is_temporary_of(const std::filesystem::path& file, std::string_view name) {
  const std::string any = temporary_name(file, 0);
  const std::size_t digits = any.size() - std::string_view("00000000.tmp").size();
  if (name.size() != any.size() || !name.starts_with(any.substr(0, digits)) || !name.ends_with(".tmp")) return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(digits), name.end() - 4,
                     [](unsigned char c) { return std::isxdigit(c) != 0; });
}

void make_folders(const std::filesystem::path& path) {
  std::error_code error;
  std::vector<std::filesystem::path> made;
  for (std::filesystem::path folder = path; !folder.empty() && !std::filesystem::exists(folder, error);
       folder = folder.parent_path())
    made.push_back(folder);
  std::filesystem::create_directories(path, error);
  if (error) fail("create folder", path, error.value());
  for (auto folder = made.rbegin(); folder != made.rend(); ++folder) sync_folder(folder_of(*folder));
}

std::filesystem::path make_temporary_folder(std::string_view prefix) {
  std::string pattern = (temporary_folder() / fmt::format("{}XXXXXX", prefix)).string();
  if (::mkdtemp(pattern.data()) == nullptr) fail("make a temporary folder", pattern, errno);
  return pattern;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void write_file_atomically(const FolderFile& file, std::string_view text) {
  AtomicFile written(file);
  written.write(text);
  written.commit();
}

std::string read_file(const std::filesystem::path& path, std::uint64_t most_bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) fail("read", path, errno);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) fail("read", path, errno);
  if (S_ISDIR(facts.st_mode)) fail("read", path, EISDIR);
  if (!S_ISREG(facts.st_mode) && !S_ISFIFO(facts.st_mode))
    throw DataError(fmt::format("cannot read {}: it is a device; expected a file or a pipe", path.string()));
  if (S_ISREG(facts.st_mode)) require_size(path, static_cast<std::uint64_t>(facts.st_size), most_bytes);
  // The size is a hint: pipes and files in /proc say 0, and a file may grow while it is read.
  std::string text;
  std::size_t used = 0;
  text.resize(static_cast<std::size_t>(facts.st_size) + 1);
  for (;;) {
    if (used == text.size()) text.resize(text.size() * 2 + 4096);
    const std::size_t got = read_some(path, file.get(), std::span(text).subspan(used));
    if (got == 0) break;
    used += got;
    require_size(path, used, most_bytes);
  }
  text.resize(used);
  return text;
}

}  // namespace bantam
