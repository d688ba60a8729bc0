// DescriptorMail: file descriptors sent between processes of one host (SCM_RIGHTS, unix(7)).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bantam/engine/comm/sockets.h"

namespace bantam {

/// Descriptors that one rank sends to another, and which of the sender's they are.
struct DescriptorLetter {
  std::uint32_t from = 0;  ///< rank
  std::uint64_t run = 0;   ///< a number of the run's own: letters of others are thrown away
  std::vector<FileDescriptor> descriptors;
};

/// A mailbox of this process, at a name that the system makes sure nobody else has.
class DescriptorMail {
 public:
  static constexpr std::size_t kMost = 128;  ///< descriptors of a letter

  /// Throws Error.
  DescriptorMail();
  /// Tell it the senders. (A name of Linux' abstract sockets, which lies in no folder.)
  const std::string& name() const { return name_; }
  /// False where there is no room now; the descriptors stay the caller's. Throws Error where nobody has that name.
  bool send(const std::string& to, std::uint32_t from, std::uint64_t run, std::span<const FileDescriptor> descriptors);
  /// The next letter; none where none came within `seconds`.
  std::optional<DescriptorLetter> receive(double seconds);

 private:
  FileDescriptor socket_;
  std::string name_;
};

}  // namespace bantam
