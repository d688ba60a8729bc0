// Writing, cutting and opening a file anew where somebody has moved it.
#include "bantam/run/log/appended_file.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

/// The facts of what is at the path itself; false: nothing.
bool look(const fs::path& path, struct stat& facts) { return ::lstat(path.c_str(), &facts) == 0; }

/// A name beside the file that nothing has.
fs::path free_name(const fs::path& file) {
  struct stat facts {};
  fs::path kept = file.string() + ".kept";
  for (int number = 2; look(kept, facts); ++number) kept = fmt::format("{}.kept-{}", file.string(), number);
  return kept;
}

}  // namespace

AppendedFile::AppendedFile(FolderFile file, std::string unit, std::function<void(std::string_view)> warn)
    : file_(std::move(file)), unit_(std::move(unit)), warn_(std::move(warn)) {}

/// After an error of the run there may be records that nobody has flushed.
AppendedFile::~AppendedFile() {
  if (!waiting_.empty()) (void)write_waiting();
}

void AppendedFile::add(std::string_view record) {
  if (file_.path.empty()) return;
  if (waiting_.size() + record.size() > kMostWaiting)
    ++dropped_;
  else
    waiting_ += record;
}

/// The sum stays that of the file, where that is another one now. A file that is to be cut counts as cut.
void AppendedFile::follow() {
  if (cut_to_) return;
  struct stat there {};
  const bool is_there = look(file_.path, there);
  const bool same = !descriptor_ || leads_to(file_.path, descriptor_.get());
  if (same && (is_there ? static_cast<std::uint64_t>(there.st_size) : 0) == sum_.bytes()) return;
  if (!same) descriptor_.reset();
  sum_ = {};
  try {
    sum_ = sum_of(file_);
  } catch (const DataError&) {  // the next record tells
  }
}

std::uint64_t AppendedFile::bytes() {
  if (file_.path.empty()) return 0;
  follow();
  return sum_.bytes() + waiting_.size();
}

FileSum AppendedFile::position() {
  if (file_.path.empty()) return {};
  follow();
  if (cut_to_ && sum_.bytes() != *cut_to_) return {.bytes = *cut_to_ + waiting_.size()};  // it could not be read
  RunningSum sum = sum_;
  sum.add(waiting_);
  return sum.finished();
}

std::string AppendedFile::difference_from(const FileSum& position) const {
  if (file_.path.empty() || position.sha256.empty()) return "";
  FileSum found;
  try {
    found = sum_of(file_, position.bytes).finished();
  } catch (const DataError& error) {
    return error.what();
  }
  if (found.bytes < position.bytes)
    return fmt::format("{} has {} bytes, expected at least the {} of the updates before", file_.path.string(),
                       found.bytes, position.bytes);
  if (found.sha256 != position.sha256)
    return fmt::format("{} differs from what the run has written: its first {} bytes have the SHA-256 {}, expected {}",
                       file_.path.string(), position.bytes, found.sha256, position.sha256);
  return "";
}

/// Keeps a file that is not what the run has written, and begins it anew so that what follows is readable.
void AppendedFile::keep_copy(const FileSum& position) {
  const std::string text = read_file(file_);
  const fs::path kept = free_name(file_.path);
  write_file_atomically(FolderFile{kept, file_.names}, text);
  const std::size_t most = std::min<std::size_t>(text.size(), position.bytes);
  const std::size_t end = unit_ == "lines" && most > 0 ? text.rfind('\n', most - 1) + 1 : 0;
  write_file_atomically(file_, std::string_view(text).substr(0, end));
  warn_(fmt::format("{} is kept as {}, and goes on after {} bytes of it", file_.path.string(), kept.string(), end));
}

void AppendedFile::cut(const FileSum& position) {
  if (file_.path.empty()) return;
  std::string reason;
  struct stat there {};
  const bool is_there = look(file_.path, there);
  const bool is_longer = is_there && static_cast<std::uint64_t>(there.st_size) > position.bytes;
  try {
    sum_ = sum_of(file_, position.bytes);
    if (!position.sha256.empty() && sum_.finished() != position && is_there && there.st_size > 0)
      return keep_copy(position), follow();
    if (is_longer) {
      cut_to_ = position.bytes;
      reason = cut_now();
    } else if (sum_.bytes() < position.bytes) {
      reason = fmt::format("it has {}", sum_.bytes());
    }
  } catch (const DataError& error) {
    reason = error.what();
    if (is_longer) cut_to_ = position.bytes;  // what cannot be read now is cut before the next record
  }
  if (!reason.empty())
    warn_(
        fmt::format("{} should have {} bytes of the updates before: {}", file_.path.string(), position.bytes, reason));
}

/// Empty, or the reason; then the next records wait for another try. A second name of the file (a hard link) keeps
/// what it has.
std::string AppendedFile::cut_now() {
  if (!cut_to_) return "";
  try {
    const FileDescriptor file = bantam::open_file(file_, O_WRONLY);
    struct stat facts {};
    if (!file || ::fstat(file.get(), &facts) != 0) return reason_text(file ? errno : ENOENT);
    if (facts.st_nlink > 1)
      write_file_atomically(file_, std::string_view(read_file(file_)).substr(0, *cut_to_));
    else if (::ftruncate(file.get(), static_cast<off_t>(*cut_to_)) != 0)
      return reason_text(errno);
  } catch (const DataError& error) {
    return error.what();
  }
  cut_to_.reset();
  return "";
}

/// Opens it again where somebody has removed it, or moved the run's folder; empty, or the reason why not.
std::string AppendedFile::open_file() {
  follow();
  if (descriptor_) return "";
  fs::path folder = file_.path;
  for (int i = 1; i < file_.names; ++i) folder = folder.parent_path();
  try {
    std::error_code ignored;  // what is wrong with a folder, opening the file says
    for (int i = 1; i < file_.names; ++i) {
      fs::create_directory(folder, ignored);
      require_no_links({.path = folder, .names = i});
      folder /= file_.path.lexically_relative(folder).begin()->string();
    }
    descriptor_ = bantam::open_file(file_, O_WRONLY | O_CREAT | O_APPEND);
    struct stat facts {};
    if (!descriptor_) return reason_text(ENOENT);
    if (::fstat(descriptor_.get(), &facts) != 0) return reason_text(errno);
    if (facts.st_nlink == 1) return "";
    descriptor_.reset();  // a hard link: the other name keeps what it has
    write_file_atomically(file_, read_file(file_));
    descriptor_ = bantam::open_file(file_, O_WRONLY | O_APPEND);
    return descriptor_ ? "" : reason_text(ENOENT);
  } catch (const DataError& error) {
    return error.what();
  }
}

/// Writes as much as there is room for. Returns the reason why not all, or nothing.
std::string AppendedFile::write_waiting() {
  if (std::string reason = cut_now(); !reason.empty()) return reason;
  if (std::string reason = open_file(); !reason.empty()) return reason;
  while (!waiting_.empty()) {
    const ssize_t written = ::write(descriptor_.get(), waiting_.data(), waiting_.size());
    if (written < 0 && errno != EINTR) return reason_text(errno);
    if (written <= 0) continue;
    sum_.add(std::string_view(waiting_).substr(0, static_cast<std::size_t>(written)));
    waiting_.erase(0, static_cast<std::size_t>(written));
  }
  return "";
}

void AppendedFile::flush() {
  if (waiting_.empty() && !cut_to_) return;
  const std::string reason = write_waiting();
  if (reason.empty() && failing_) {
    warn_(fmt::format("{} is written again{}", file_.path.string(),
                      dropped_ > 0 ? fmt::format("; {} {} are lost", dropped_, unit_) : std::string()));
    lost_ += std::exchange(dropped_, 0);
  } else if (!reason.empty() && !failing_) {
    warn_(fmt::format("{} cannot be written: {}; the training goes on, and the {} wait for room", file_.path.string(),
                      reason, unit_));
  }
  failing_ = !reason.empty();
}

void AppendedFile::end() {
  flush();
  if (failing_)
    warn_(fmt::format("{} lacks {} bytes of the last {}{}", file_.path.string(), waiting_.size(), unit_,
                      dropped_ > 0 ? fmt::format(", and {} more {}", dropped_, unit_) : std::string()));
}

}  // namespace bantam::run
