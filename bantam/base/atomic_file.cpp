// Write to a temporary file, fsync, rename, fsync the folder: a crash leaves the old file or the new one, never half of
// one.
#include "bantam/base/atomic_file.h"

#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path, int reason) {
  throw DataError(fmt::format("cannot {} {}: {}", what, path.string(), std::generic_category().message(reason)));
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  return folder.empty() ? std::filesystem::path(".") : folder;
}

/// Makes the rename itself last. Some file systems cannot sync a folder and say EINVAL: nothing more can be done there.
void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("open folder", folder, errno);
  const int result = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  if (result != 0 && reason != EINVAL && reason != ENOTSUP) fail("sync folder", folder, reason);
}

/// A read-only descriptor that closes itself.
struct Descriptor {
  explicit Descriptor(int value) : value(value) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value;
};

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.filename().empty()) throw DataError(fmt::format("cannot write '{}': it names no file", path_.string()));
  std::error_code error;
  std::filesystem::create_directories(folder_of(path_), error);
  if (error) fail("create folder", folder_of(path_), error.value());
  std::random_device random;
  do {
    temporary_ = folder_of(path_) / fmt::format(".{}.{:08x}.tmp", path_.filename().string(), random());
    // Mode 0644 is cut by the umask, as for any file a program makes.
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0) fail("create", temporary_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) fail("write", path_, EBADF);
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write", path_, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void AtomicFile::commit() {
  if (descriptor_ < 0) fail("write", path_, EBADF);
  if (::fsync(descriptor_) != 0) fail("sync", path_, errno);
  const int closed = ::close(std::exchange(descriptor_, -1));
  // After EINTR the descriptor is closed all the same on Linux, and the data is already synced.
  if (closed != 0 && errno != EINTR) fail("close", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("write", path_, errno);
  temporary_.clear();
  sync_folder(folder_of(path_));
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value < 0) fail("read", path, errno);
  struct stat facts {};
  if (::fstat(file.value, &facts) != 0) fail("read", path, errno);
  if (S_ISDIR(facts.st_mode)) fail("read", path, EISDIR);
  // The size is a hint: pipes and files in /proc say 0, and a file may grow while it is read.
  std::string text;
  std::size_t used = 0;
  text.resize(static_cast<std::size_t>(facts.st_size) + 1);
  for (;;) {
    if (used == text.size()) text.resize(text.size() * 2 + 4096);
    const ssize_t got = ::read(file.value, text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  text.resize(used);
  return text;
}

}  // namespace bantam
