// Writing, cutting and opening a file anew where somebody has moved it.
#include "bantam/run/log/appended_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bantam::run {
namespace fs = std::filesystem;

AppendedFile::AppendedFile(fs::path path, std::string unit, std::function<void(std::string_view)> warn,
                           bool makes_folder)
    : path_(std::move(path)), unit_(std::move(unit)), warn_(std::move(warn)), makes_folder_(makes_folder) {}

/// After an error of the run there may be records that nobody has flushed.
AppendedFile::~AppendedFile() {
  if (!waiting_.empty()) (void)write_waiting();
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendedFile::add(std::string_view record) {
  if (path_.empty()) return;
  if (waiting_.size() + record.size() > kMostWaiting)
    ++dropped_;
  else
    waiting_ += record;
}

std::uint64_t AppendedFile::bytes() const {
  if (cut_to_) return *cut_to_ + waiting_.size();
  std::error_code error;
  const std::uint64_t written = fs::is_regular_file(path_, error) ? fs::file_size(path_, error) : 0;
  return (error ? 0 : written) + waiting_.size();
}

void AppendedFile::cut(std::uint64_t bytes) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path_, error);
  if (!error && size > bytes) {
    cut_to_ = bytes;
    if (const int reason = cut_now(); reason != 0) error.assign(reason, std::generic_category());
  }
  if (error ? bytes > 0 || error != std::errc::no_such_file_or_directory : size < bytes)
    warn_(fmt::format("{} should have {} bytes of the updates before: {}", path_.string(), bytes,
                      error ? error.message() : fmt::format("it has {}", size)));
}

/// 0, or the system's reason; then the next records wait for another try.
int AppendedFile::cut_now() {
  if (!cut_to_) return 0;
  std::error_code error;
  fs::resize_file(path_, *cut_to_, error);
  if (!error) cut_to_.reset();
  return error.value();
}

/// Opens it again where somebody has removed it, or moved the run's folder; 0, or the system's reason.
int AppendedFile::open_file() {
  struct stat open {
  }, there{};
  if (descriptor_ >= 0 && (::fstat(descriptor_, &open) != 0 || ::stat(path_.c_str(), &there) != 0 ||
                           open.st_dev != there.st_dev || open.st_ino != there.st_ino))
    ::close(std::exchange(descriptor_, -1));
  if (descriptor_ >= 0) return 0;
  std::error_code ignored;  // what is wrong with the folder, opening the file says
  if (makes_folder_) {
    fs::create_directory(path_.parent_path().parent_path(), ignored);  // RUN/tensorboard of RUN/tensorboard/train
    fs::create_directory(path_.parent_path(), ignored);
  }
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  return descriptor_ < 0 ? errno : 0;
}

/// As much as there is room for; 0, or the system's reason why not all.
int AppendedFile::write_waiting() {
  if (const int reason = cut_now(); reason != 0) return reason;
  if (const int reason = open_file(); reason != 0) return reason;
  while (!waiting_.empty()) {
    const ssize_t written = ::write(descriptor_, waiting_.data(), waiting_.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) waiting_.erase(0, static_cast<std::size_t>(written));
  }
  return 0;
}

void AppendedFile::flush() {
  if (waiting_.empty() && !cut_to_) return;
  const int reason = write_waiting();
  if (reason == 0 && failing_) {
    warn_(fmt::format("{} is written again{}", path_.string(),
                      dropped_ > 0 ? fmt::format("; {} {} are lost", dropped_, unit_) : std::string()));
    lost_ += std::exchange(dropped_, 0);
  } else if (reason != 0 && !failing_) {
    warn_(fmt::format("{} cannot be written: {}; the training goes on, and the {} wait for room", path_.string(),
                      std::generic_category().message(reason), unit_));
  }
  failing_ = reason != 0;
}

void AppendedFile::end() {
  flush();
  if (failing_)
    warn_(fmt::format("{} lacks {} bytes of the last {}{}", path_.string(), waiting_.size(), unit_,
                      dropped_ > 0 ? fmt::format(", and {} more {}", dropped_, unit_) : std::string()));
}

}  // namespace bantam::run
