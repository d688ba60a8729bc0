// Preloaded into a program (LD_PRELOAD): calls that change files below a folder are counted, and some of them fail, or
// all are written to a log from which power_trial.py builds what a disk may have after power loss.
//
//   BANTAM_FAULT_FOLDER=/folder  calls with paths below it, or descriptors of files below it, count; from 1
//   BANTAM_FAULT_CALL=k          the k-th fails; 0: none
//   BANTAM_FAULT_LAST=m          so do all until the m-th; by default k
//   BANTAM_FAULT_ERRNO=28        with this number (ENOSPC)
//   BANTAM_FAULT_HOLD=/file      while it is there, a file of the folder itself whose name has this one's is not made
//   BANTAM_FAULT_COUNT=file      gets the number of calls at the program's end
//   BANTAM_FAULT_LOG=file        gets a line a call that succeeded: operation, paths below the folder, numbers, bytes
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

struct Settings {
  std::string folder;
  long first = 0, last = 0;
  int error = ENOSPC;
  int log = -1;
  std::string count, hold;
};

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const Settings& settings() {
  static const Settings* const made = [] {  // never destroyed: the last calls come after static objects are gone
    auto* const settings = new Settings;
    Settings& read = *settings;
    read.folder = variable("BANTAM_FAULT_FOLDER");
    read.first = std::atol(variable("BANTAM_FAULT_CALL"));
    const long last = std::atol(variable("BANTAM_FAULT_LAST"));
    read.last = last > 0 ? last : read.first;
    if (const int error = std::atoi(variable("BANTAM_FAULT_ERRNO")); error > 0) read.error = error;
    if (const char* log = variable("BANTAM_FAULT_LOG"); *log != '\0')
      read.log =
          static_cast<int>(::syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    read.count = variable("BANTAM_FAULT_COUNT");
    read.hold = variable("BANTAM_FAULT_HOLD");
    return settings;
  }();
  return *made;
}

std::atomic<long> g_calls{0};
std::mutex& g_order = *new std::mutex;  // of calls and of their lines in the log

[[gnu::destructor]] void write_count() {
  if (settings().count.empty()) return;
  const std::string text = std::to_string(g_calls.load()) + "\n";
  const int file =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, settings().count.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644));
  if (file >= 0 && ::syscall(SYS_write, file, text.data(), text.size()) < 0) std::perror("BANTAM_FAULT_COUNT");
  ::syscall(SYS_close, file);
}

/// The function that this one stands before.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::string path_of(int descriptor) {
  char target[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  return length <= 0 ? "" : std::string(target, static_cast<std::size_t>(length));
}

std::string absolute(int folder, const char* path) {
  if (path == nullptr) return "";
  std::string whole = path;
  if (path[0] != '/') {
    char here[PATH_MAX];
    const std::string base = folder != AT_FDCWD ? path_of(folder) : ::getcwd(here, sizeof here) != nullptr ? here : "";
    whole = base + "/" + path;
  }
  while (whole.size() > 1 && whole.back() == '/') whole.pop_back();
  return whole;
}

/// The path below the folder, "." for the folder itself; empty: it is elsewhere.
std::string below(const std::string& path) {
  const std::string& folder = settings().folder;
  if (folder.empty() || !path.starts_with(folder)) return "";
  if (path.size() == folder.size()) return ".";
  return path[folder.size()] == '/' ? path.substr(folder.size() + 1) : "";
}

bool exists(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0;
}

/// Counts the call; true where it shall fail, with errno set.
bool fails() {
  const long call = ++g_calls;
  if (settings().first == 0 || call < settings().first || call > settings().last) return false;
  errno = settings().error;
  return true;
}

void log(const std::string& line) {
  if (settings().log < 0) return;
  const int error = errno;
  const std::string text = line + "\n";
  std::size_t done = 0;
  while (done < text.size()) {
    const long written = ::syscall(SYS_write, settings().log, text.data() + done, text.size() - done);
    if (written <= 0) std::abort();
    done += static_cast<std::size_t>(written);
  }
  errno = error;
}

std::string hexadecimal(const void* data, std::size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto* from = static_cast<const unsigned char*>(data);
  std::string text(bytes * 2, '0');
  for (std::size_t i = 0; i < bytes; ++i) {
    text[2 * i] = kDigits[from[i] >> 4];
    text[2 * i + 1] = kDigits[from[i] & 15];
  }
  return text;
}

int do_open(int folder, const char* path, int flags, mode_t mode) {
  const std::string whole = absolute(folder, path), name = below(whole);
  const auto real = [&] { return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode)); };
  if (name.empty()) return real();
  const std::string& hold = settings().hold;
  const bool holds = !hold.empty() && (flags & O_CREAT) != 0 && name.find('/') == std::string::npos &&
                     name.find(hold.substr(hold.rfind('/') + 1)) != std::string::npos;
  while (holds && exists(hold)) ::usleep(10'000);
  const std::lock_guard lock(g_order);
  if (fails()) return -1;
  const bool there = exists(whole);
  const int descriptor = real();
  if (descriptor >= 0 && (flags & O_CREAT) != 0 && !there) log("create\t" + name);
  if (descriptor >= 0 && (flags & O_TRUNC) != 0 && there) log("truncate\t" + name + "\t0");
  return descriptor;
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

/// `call` on a descriptor; `told` is the line in the log of a call that returned `result`.
template <typename Result, typename Call, typename Told>
Result on_descriptor(int descriptor, const Call& call, const Told& told) {
  const std::string name = below(path_of(descriptor));
  if (name.empty()) return call();
  const std::lock_guard lock(g_order);
  if (fails()) return static_cast<Result>(-1);
  const Result result = call();
  if (result >= 0) log(told(name, result));
  return result;
}

template <typename Call>
int on_path(const char* operation, int folder, const char* path, const Call& call) {
  const std::string name = below(absolute(folder, path));
  if (name.empty()) return call();
  const std::lock_guard lock(g_order);
  if (fails()) return -1;
  const int result = call();
  if (result == 0) log(std::string(operation) + "\t" + name);
  return result;
}

int do_rename(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const std::string old_name = below(absolute(from_folder, from)), new_name = below(absolute(to_folder, to));
  const auto real = [&] { return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags)); };
  if (old_name.empty() && new_name.empty()) return real();
  const std::lock_guard lock(g_order);
  if (fails()) return -1;
  const int result = real();
  if (result == 0) log("rename\t" + old_name + "\t" + new_name);
  return result;
}

ssize_t do_pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  return on_descriptor<ssize_t>(
      descriptor, [&] { return static_cast<ssize_t>(::syscall(SYS_pwrite64, descriptor, data, bytes, offset)); },
      [&](const std::string& name, ssize_t done) {
        return "write\t" + name + "\t" + std::to_string(offset) + "\t" +
               hexadecimal(data, static_cast<std::size_t>(done));
      });
}

int do_sync(const char* function, int descriptor) {
  return on_descriptor<int>(
      descriptor, [&] { return next<int(int)>(function)(descriptor); },
      [](const std::string& name, int) { return "fsync\t" + name; });
}

int do_ftruncate(int descriptor, off_t bytes) {
  return on_descriptor<int>(
      descriptor, [&] { return static_cast<int>(::syscall(SYS_ftruncate, descriptor, bytes)); },
      [&](const std::string& name, int) { return "truncate\t" + name + "\t" + std::to_string(bytes); });
}

int do_truncate(const char* path, off_t bytes) {
  const std::string name = below(absolute(AT_FDCWD, path));
  const auto real = [&] { return static_cast<int>(::syscall(SYS_truncate, path, bytes)); };
  if (name.empty()) return real();
  const std::lock_guard lock(g_order);
  if (fails()) return -1;
  const int result = real();
  if (result == 0) log("truncate\t" + name + "\t" + std::to_string(bytes));
  return result;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names of the C library
extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return do_open(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return do_open(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return do_open(folder, path, flags, mode);
}

int openat64(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return do_open(folder, path, flags, mode);
}

int creat(const char* path, mode_t mode) { return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char* path, mode_t mode) { return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

ssize_t write(int descriptor, const void* data, size_t bytes) {
  return on_descriptor<ssize_t>(
      descriptor, [&] { return static_cast<ssize_t>(::syscall(SYS_write, descriptor, data, bytes)); },
      [&](const std::string& name, ssize_t done) {
        return "write\t" + name + "\t" + std::to_string(::lseek(descriptor, 0, SEEK_CUR) - done) + "\t" +
               hexadecimal(data, static_cast<std::size_t>(done));
      });
}

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  return do_pwrite(descriptor, data, bytes, offset);
}
ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off64_t offset) {
  return do_pwrite(descriptor, data, bytes, offset);
}

int fsync(int descriptor) { return do_sync("fsync", descriptor); }
int fdatasync(int descriptor) { return do_sync("fdatasync", descriptor); }

int rename(const char* from, const char* to) noexcept { return do_rename(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return do_rename(from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return do_rename(from_folder, from, to_folder, to, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  return on_path("mkdir", AT_FDCWD, path,
                 [&] { return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode)); });
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return on_path("mkdir", folder, path, [&] { return static_cast<int>(::syscall(SYS_mkdirat, folder, path, mode)); });
}
int unlink(const char* path) noexcept {
  return on_path("unlink", AT_FDCWD, path,
                 [&] { return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0)); });
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return on_path((flags & AT_REMOVEDIR) != 0 ? "rmdir" : "unlink", folder, path,
                 [&] { return static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags)); });
}
int rmdir(const char* path) noexcept {
  return on_path("rmdir", AT_FDCWD, path,
                 [&] { return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR)); });
}
int remove(const char* path) noexcept {
  struct stat facts {};
  return ::lstat(path, &facts) == 0 && S_ISDIR(facts.st_mode) ? rmdir(path) : unlink(path);
}

int ftruncate(int descriptor, off_t bytes) noexcept { return do_ftruncate(descriptor, bytes); }
int ftruncate64(int descriptor, off64_t bytes) noexcept { return do_ftruncate(descriptor, bytes); }
int truncate(const char* path, off_t bytes) noexcept { return do_truncate(path, bytes); }
int truncate64(const char* path, off64_t bytes) noexcept { return do_truncate(path, bytes); }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
