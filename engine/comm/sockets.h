// TCP sockets as values: descriptors that close themselves, addresses, listening, connecting, an event to end a poll.
#pragma once

#include <cerrno>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "bantam/base/file_descriptor.h"
#include "bantam/engine/comm/endpoint.h"

namespace bantam {

/// One IPv4 or IPv6 address with its port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  int family() const { return storage.ss_family; }
  int port() const;
  /// The number alone, "127.0.0.1"; an IPv4 number that is mapped into IPv6 is written as IPv4.
  std::string number() const;
  std::string text() const { return to_text({number(), port()}); }
  bool is_loopback() const;
};

/// Whether a call on a non-blocking socket failed because it would have to wait, or was interrupted, and is to be
/// repeated.
inline bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

/// Addresses of a host: none where the name is not known, then `why` says so.
std::vector<SocketAddress> resolve(const Endpoint& endpoint, std::string& why);
/// This host's or the other side's address of a socket.
SocketAddress own_address(const FileDescriptor& socket);
SocketAddress peer_address(const FileDescriptor& socket);

/// A non-blocking socket that listens at the address, port 0 being any free one. None where that fails; `why` says so.
FileDescriptor listen_at(const SocketAddress& address, std::string& why);
/// At any address of this host, IPv6 and IPv4 where there are both.
FileDescriptor listen_anywhere(int port, std::string& why);
/// A connection that waits at the listener, non-blocking and without delay; none where none waits.
FileDescriptor accept_from(const FileDescriptor& listener);
/// A connection, non-blocking and without delay, after at most `seconds`; none where that fails; `why` says so.
/// Returns early, with none, when `stop` says so (asked some ten times a second; may be empty).
FileDescriptor connect_to(const SocketAddress& address, double seconds, const std::function<bool()>& stop,
                          std::string& why);

/// This host's name.
std::string host_name();

/// Makes a poll() return: its descriptor is readable from signal() to clear(). Any thread may signal.
class WakeEvent {
 public:
  WakeEvent();
  int fd() const { return event_.get(); }
  void signal() noexcept;
  void clear() noexcept;

 private:
  FileDescriptor event_;
};

}  // namespace bantam
