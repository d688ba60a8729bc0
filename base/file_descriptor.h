// FileDescriptor: a file, a socket or an event that closes itself.
#pragma once

#include <cerrno>
#include <utility>

#include <unistd.h>

namespace bantam {

/// Owns one descriptor; -1: none. Closing it keeps errno as it was.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int value) : value_(value) {}
  FileDescriptor(FileDescriptor&& other) noexcept : value_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = other.release();
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }
  /// The caller closes it from now on.
  int release() { return std::exchange(value_, -1); }
  void reset() {
    const int reason = errno;
    if (value_ >= 0) ::close(release());
    errno = reason;
  }

 private:
  int value_ = -1;
};

}  // namespace bantam
