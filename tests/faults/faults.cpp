// Preloaded into a program (LD_PRELOAD): calls on files below a folder are counted, and some of them fail, or all that
// change files are written to a log from which power_trial.py builds what a disk may have after power loss.
//
//   BANTAM_FAULT_FOLDER=/folder  calls with paths below it, or descriptors of files below it, count; from 1
//   BANTAM_FAULT_KIND=fail       which calls count, and what happens at the k-th:
//                                  fail   open, and calls that change files: it returns an error
//                                  kill   the same calls: the process gets SIGKILL before it, of a write in its middle
//                                  short  reads and writes of two bytes or more: half of the bytes are transferred
//                                  read   reads: it returns an error
//                                  mmap   mmap, of a file or of none, but for oneDNN's: it returns ENOMEM
//   BANTAM_FAULT_CALL=k          the k-th fails; 0: none
//   BANTAM_FAULT_LAST=m          so do all until the m-th; by default k
//   BANTAM_FAULT_ERRNO=28        with this number (ENOSPC)
//   BANTAM_FAULT_HOLD=/file      while it is there, a file of the folder itself whose name has this one's is not made
//   BANTAM_FAULT_COUNT=file      gets a line at a fault, "fault K OPERATION PATH", and one at a process's end,
//                                "calls CHANGES TRANSFERS READS MMAPS"
//   BANTAM_FAULT_LOG=file        gets a line a call that succeeded: operation, paths below the folder, numbers, bytes
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

enum class Kind { fail, kill, cut, read, mmap };  // `cut` is BANTAM_FAULT_KIND=short

/// Calls that are counted together; a kind of fault has calls of one of them.
enum Calls { kChanges, kTransfers, kReads, kMaps, kAllCalls };

constexpr Calls calls_of(Kind kind) {
  return kind == Kind::cut ? kTransfers : kind == Kind::read ? kReads : kind == Kind::mmap ? kMaps : kChanges;
}

struct Settings {
  std::string folder;
  Kind kind = Kind::fail;
  long first = 0, last = 0;
  int error = ENOSPC;
  int log = -1;
  std::string count, hold;
};

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Kind kind_named(std::string_view name) {
  return name == "kill"    ? Kind::kill
         : name == "short" ? Kind::cut
         : name == "read"  ? Kind::read
         : name == "mmap"  ? Kind::mmap
                           : Kind::fail;
}

const Settings& settings() {
  static const Settings* const made = [] {  // never destroyed: the last calls come after static objects are gone
    auto* const settings = new Settings;
    Settings& read = *settings;
    read.folder = variable("BANTAM_FAULT_FOLDER");
    read.kind = kind_named(variable("BANTAM_FAULT_KIND"));
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

std::array<std::atomic<long>, kAllCalls> g_calls;
std::mutex& g_order = *new std::mutex;  // of calls and of their lines in the log

/// Appends a line to BANTAM_FAULT_COUNT's file.
void note(const std::string& line) {
  if (settings().count.empty()) return;
  const int error = errno;
  const std::string text = line + "\n";
  const int file =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, settings().count.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644));
  if (file >= 0 && ::syscall(SYS_write, file, text.data(), text.size()) < 0) std::perror("BANTAM_FAULT_COUNT");
  ::syscall(SYS_close, file);
  errno = error;
}

[[gnu::destructor]] void write_counts() {
  std::string line = "calls";
  for (const std::atomic<long>& calls : g_calls) line += " " + std::to_string(calls.load());
  note(line);
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

/// Whether calls of this sort are counted.
bool counts(Calls calls) { return settings().first == 0 || calls_of(settings().kind) == calls; }

/// Counts the call; true where something shall happen at it.
bool is_chosen(Calls calls, const char* operation, const std::string& name) {
  const long call = ++g_calls[calls];
  if (calls_of(settings().kind) != calls || settings().first == 0 || call < settings().first || call > settings().last)
    return false;
  note("fault " + std::to_string(call) + " " + operation + " " + name);
  return true;
}

[[noreturn]] void die() {
  ::syscall(SYS_kill, ::getpid(), SIGKILL);
  for (;;) ::pause();
}

/// Counts a call that opens or changes a file; true where it shall fail, with errno set.
bool fails(const char* operation, const std::string& name) {
  if (!is_chosen(kChanges, operation, name)) return false;
  if (settings().kind == Kind::kill) die();
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
  if (fails("open", name)) return -1;
  const bool there = exists(whole);
  const int descriptor = real();
  if (descriptor >= 0 && (flags & O_CREAT) != 0 && !there) log("create\t" + name);
  if (descriptor >= 0 && (flags & O_TRUNC) != 0 && there) log("truncate\t" + name + "\t0");
  return descriptor;
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

/// `call` on a descriptor; `told` is the line in the log of a call that succeeded.
template <typename Call, typename Told>
int on_descriptor(const char* operation, int descriptor, const Call& call, const Told& told) {
  const std::string name = below(path_of(descriptor));
  if (name.empty()) return call();
  const std::lock_guard lock(g_order);
  if (fails(operation, name)) return -1;
  const int result = call();
  if (result >= 0) log(told(name));
  return result;
}

/// A write of `bytes` bytes by `call(count)`, which writes the first `count`; `place(written)` is where they went.
template <typename Call, typename Place>
ssize_t on_write(int descriptor, const void* data, size_t bytes, const Call& call, const Place& place) {
  const std::string name = below(path_of(descriptor));
  if (name.empty()) return call(bytes);
  const std::lock_guard lock(g_order);
  if (bytes > 1 && is_chosen(kTransfers, "write", name)) bytes /= 2;
  if (is_chosen(kChanges, "write", name)) {
    if (settings().kind == Kind::kill) {
      (void)call(bytes / 2);
      die();
    }
    errno = settings().error;
    return -1;
  }
  const ssize_t written = call(bytes);
  if (written >= 0 && settings().log >= 0)
    log("write\t" + name + "\t" + std::to_string(place(written)) + "\t" +
        hexadecimal(data, static_cast<std::size_t>(written)));
  return written;
}

/// A read of at most `bytes` bytes by `call(count)`.
template <typename Call>
ssize_t on_read(int descriptor, size_t bytes, const Call& call) {
  if (!counts(kTransfers) && !counts(kReads)) return call(bytes);
  const std::string name = below(path_of(descriptor));
  if (name.empty()) return call(bytes);
  if (bytes > 1 && is_chosen(kTransfers, "read", name)) bytes /= 2;
  if (!is_chosen(kReads, "read", name)) return call(bytes);
  errno = settings().error;
  return -1;
}

/// Joins the pieces of a writev.
std::vector<char> joined(const iovec* pieces, int count) {
  std::vector<char> all;
  for (int i = 0; i < count; ++i) {
    const auto* from = static_cast<const char*>(pieces[i].iov_base);
    all.insert(all.end(), from, from + pieces[i].iov_len);
  }
  return all;
}

template <typename Call>
int on_path(const char* operation, int folder, const char* path, const Call& call) {
  const std::string name = below(absolute(folder, path));
  if (name.empty()) return call();
  const std::lock_guard lock(g_order);
  if (fails(operation, name)) return -1;
  const int result = call();
  if (result == 0) log(std::string(operation) + "\t" + name);
  return result;
}

int do_rename(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const std::string old_name = below(absolute(from_folder, from)), new_name = below(absolute(to_folder, to));
  const auto real = [&] { return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags)); };
  if (old_name.empty() && new_name.empty()) return real();
  const std::lock_guard lock(g_order);
  if (fails("rename", new_name)) return -1;
  const int result = real();
  if (result == 0) log("rename\t" + old_name + "\t" + new_name);
  return result;
}

ssize_t do_write(int descriptor, const void* data, size_t bytes) {
  return on_write(
      descriptor, data, bytes,
      [&](size_t count) { return static_cast<ssize_t>(::syscall(SYS_write, descriptor, data, count)); },
      [&](ssize_t written) { return ::lseek(descriptor, 0, SEEK_CUR) - written; });
}

ssize_t do_pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  return on_write(
      descriptor, data, bytes,
      [&](size_t count) { return static_cast<ssize_t>(::syscall(SYS_pwrite64, descriptor, data, count, offset)); },
      [&](ssize_t) { return offset; });
}

ssize_t do_pread(int descriptor, void* data, size_t bytes, off_t offset) {
  return on_read(descriptor, bytes, [&](size_t count) {
    return static_cast<ssize_t>(::syscall(SYS_pread64, descriptor, data, count, offset));
  });
}

int do_sync(const char* function, int descriptor) {
  return on_descriptor(
      "fsync", descriptor, [&] { return next<int(int)>(function)(descriptor); },
      [](const std::string& name) { return "fsync\t" + name; });
}

int do_ftruncate(int descriptor, off_t bytes) {
  return on_descriptor(
      "truncate", descriptor, [&] { return static_cast<int>(::syscall(SYS_ftruncate, descriptor, bytes)); },
      [&](const std::string& name) { return "truncate\t" + name + "\t" + std::to_string(bytes); });
}

/// Streams of the C library open their files within it: this one counts such a call, and logs what it did.
std::FILE* do_fopen(const char* function, const char* path, const char* mode) {
  const std::string whole = absolute(AT_FDCWD, path), name = below(whole);
  const auto real = [&] { return next<std::FILE*(const char*, const char*)>(function)(path, mode); };
  if (name.empty()) return real();
  const std::lock_guard lock(g_order);
  if (fails("open", name)) return nullptr;
  const bool there = exists(whole);
  std::FILE* const file = real();
  if (file != nullptr && mode[0] != 'r' && !there) log("create\t" + name);
  if (file != nullptr && mode[0] == 'w' && there) log("truncate\t" + name + "\t0");
  return file;
}

/// oneDNN's code generator writes where its mmap has failed; nobody above it can help that.
bool is_onednn(const void* caller) {
  Dl_info object{};
  return ::dladdr(caller, &object) != 0 && object.dli_fname != nullptr &&
         std::strstr(object.dli_fname, "libdnnl") != nullptr;
}

void* do_mmap(const void* caller, void* address, size_t bytes, int protection, int flags, int descriptor,
              off_t offset) {
  if (counts(kMaps) && !is_onednn(caller) && is_chosen(kMaps, "mmap", "")) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, descriptor, offset));
}

int do_truncate(const char* path, off_t bytes) {
  const std::string name = below(absolute(AT_FDCWD, path));
  const auto real = [&] { return static_cast<int>(::syscall(SYS_truncate, path, bytes)); };
  if (name.empty()) return real();
  const std::lock_guard lock(g_order);
  if (fails("truncate", name)) return -1;
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

std::FILE* fopen(const char* path, const char* mode) { return do_fopen("fopen", path, mode); }
std::FILE* fopen64(const char* path, const char* mode) { return do_fopen("fopen64", path, mode); }

/// Fails as `write` does, but for short writes, which the C library completes itself.
size_t fwrite(const void* data, size_t size, size_t count, std::FILE* stream) {
  const auto real = next<size_t(const void*, size_t, size_t, std::FILE*)>("fwrite");
  const std::string name = below(path_of(::fileno(stream)));
  if (name.empty()) return real(data, size, count, stream);
  const std::lock_guard lock(g_order);
  if (!is_chosen(kChanges, "write", name)) return real(data, size, count, stream);
  if (settings().kind == Kind::kill) {
    real(data, 1, size * count / 2, stream);
    std::fflush(stream);
    die();
  }
  errno = settings().error;
  return 0;
}

ssize_t write(int descriptor, const void* data, size_t bytes) { return do_write(descriptor, data, bytes); }
ssize_t writev(int descriptor, const iovec* pieces, int count) {
  if (below(path_of(descriptor)).empty()) return static_cast<ssize_t>(::syscall(SYS_writev, descriptor, pieces, count));
  const std::vector<char> all = joined(pieces, count);
  return do_write(descriptor, all.data(), all.size());
}
ssize_t read(int descriptor, void* data, size_t bytes) {
  return on_read(descriptor, bytes,
                 [&](size_t count) { return static_cast<ssize_t>(::syscall(SYS_read, descriptor, data, count)); });
}
ssize_t pread(int descriptor, void* data, size_t bytes, off_t offset) {
  return do_pread(descriptor, data, bytes, offset);
}
ssize_t pread64(int descriptor, void* data, size_t bytes, off64_t offset) {
  return do_pread(descriptor, data, bytes, offset);
}
void* mmap(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset) noexcept {
  return do_mmap(__builtin_return_address(0), address, bytes, protection, flags, descriptor, offset);
}
void* mmap64(void* address, size_t bytes, int protection, int flags, int descriptor, off64_t offset) noexcept {
  return do_mmap(__builtin_return_address(0), address, bytes, protection, flags, descriptor, offset);
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
