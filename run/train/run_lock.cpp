// The lock file: its text names the owner, its flock is the lock.
#include "bantam/run/train/run_lock.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/file_lock.h"
#include "bantam/base/plain_words.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFile = ".lock";
constexpr std::size_t kLongestCommand = 200;

/// Cut to a length for messages.
std::string shortened(const std::string& command) {
  return command.size() <= kLongestCommand ? command : command.substr(0, kLongestCommand) + "...";
}

/// "1234 (bantam train …)"; with the host where that is another one. What the holder wrote, a line each: process, host,
/// command.
std::string holder(const fs::path& path) {
  constexpr int kTries = 20;
  constexpr std::chrono::milliseconds kPause{5};
  for (int i = 0; i < kTries; ++i) {
    std::string text;
    try {
      text = read_file(FolderFile{path}, 1 << 16);
    } catch (const DataError&) {
      break;
    }
    const std::size_t first = text.find('\n'), second = text.find('\n', first + 1);
    if (first != std::string::npos && second != std::string::npos && text.back() == '\n') {
      const std::string host = text.substr(first + 1, second - first - 1);
      return fmt::format("process {}{} ({})", text.substr(0, first), host == host_name() ? "" : " on " + host,
                         text.substr(second + 1, text.size() - second - 2));
    }
    std::this_thread::sleep_for(kPause);  // it has the lock, and is about to write
  }
  return "another process";
}

[[noreturn]] void in_use(const fs::path& path) {
  throw ConfigError(fmt::format("{} is in use by {}: wait until it has ended, or name another folder",
                                path.parent_path().string(), holder(path)));
}

/// Others look for some microseconds (is_locked), which is no reason to be refused.
FileLock try_to_own(int descriptor) {
  constexpr int kTries = 5;
  constexpr std::chrono::milliseconds kPause{2};
  for (int i = 1;; ++i) {
    const FileLock lock = try_lock_file(descriptor, LOCK_EX);
    if (lock != FileLock::taken || i == kTries) return lock;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string command_line() {
  std::string text;
  try {
    text = read_file("/proc/self/cmdline");
  } catch (const DataError&) {
    return "bantam";
  }
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

RunLock::RunLock(fs::path folder) : path_(std::move(folder) / kFile) {
  for (;;) {
    descriptor_ = open_file({.path = path_}, O_RDWR | O_CREAT);
    if (!descriptor_) throw DataError(fmt::format("cannot create {}: {}", path_.string(), reason_text(ENOENT)));
    const FileLock lock = try_to_own(descriptor_.get());
    if (lock == FileLock::taken) in_use(path_);
    holds_ = lock == FileLock::locked;
    struct stat facts {};
    const bool is_linked = ::fstat(descriptor_.get(), &facts) == 0 && facts.st_nlink > 1;
    if (is_linked) ::unlink(path_.c_str());  // a hard link: the other name keeps what it has
    if (!is_linked && leads_to(path_, descriptor_.get())) break;
  }
  // On a full disk others read of "another process".
  const std::string text = fmt::format("{}\n{}\n{}\n", ::getpid(), host_name(), shortened(command_line()));
  if (::ftruncate(descriptor_.get(), 0) == 0) (void)!::pwrite(descriptor_.get(), text.data(), text.size(), 0);
}

RunLock::~RunLock() {
  if (leads_to(path_, descriptor_.get())) ::unlink(path_.c_str());  // still locked, so it is nobody else's
}

void RunLock::require_free(const fs::path& folder) {
  if (is_locked(folder)) in_use(folder / kFile);
}

bool RunLock::is_locked(const fs::path& folder) {
  try {
    const FileDescriptor file = open_file({.path = folder / kFile}, O_RDONLY);
    return file && try_lock_file(file.get(), LOCK_SH) == FileLock::taken;  // several may look at once
  } catch (
      const DataError&) {  // it cannot be read, or is no file of a run: whoever wants the folder receives the error
    return false;
  }
}

}  // namespace bantam::run
