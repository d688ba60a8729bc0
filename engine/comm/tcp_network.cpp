// The system's buffers are the streams': nothing is kept here. Sockets stay open until the network goes, so that no
// wait under way meets another file's descriptor.
#include "bantam/engine/comm/tcp_network.h"

#include <algorithm>
#include <cerrno>
#include <cmath>

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "bantam/base/clock.h"
#include "bantam/base/plain_words.h"

namespace bantam {
namespace {

/// Milliseconds of a poll that ends at the time, not before: -1 for no end.
int poll_milliseconds(double seconds) {
  if (seconds > 1e6) return -1;
  return static_cast<int>(std::ceil(std::max(seconds, 0.0) * 1000));
}

}  // namespace

TcpNetwork::TcpNetwork(int rank, std::vector<FileDescriptor> sockets, std::vector<std::string> hosts)
    : rank_(rank), peers_(sockets.size()), hosts_(std::move(hosts)) {
  for (std::size_t i = 0; i < sockets.size(); ++i) peers_[i].socket = std::move(sockets[i]);
}

void TcpNetwork::end(Peer& peer, int error) {
  // A write after the other side's end fails with EPIPE; a process that is killed before it has read everything resets
  // its connections. Either way it is the other side that has closed.
  const auto closed = [](int code) { return code == 0 || code == EPIPE || code == ECONNRESET; };
  if (closed(error)) error = peer.write_error;
  if (!closed(error)) peer.read_error = reason_text(error);
  peer.ended = true;
}

std::size_t TcpNetwork::write(int to, std::span<const std::byte> bytes) {
  Peer& at = peer(to);
  if (at.ended || at.write_error != 0 || bytes.empty()) return 0;
  const auto n = ::send(at.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0) return static_cast<std::size_t>(n);
  if (!would_block(errno)) {
    at.write_error = errno;
    at.empty = false;
  }
  return 0;
}

std::size_t TcpNetwork::read(int from, std::span<std::byte> bytes) {
  Peer& at = peer(from);
  if (at.ended || bytes.empty()) return 0;
  const auto n = ::recv(at.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n > 0) return static_cast<std::size_t>(n);
  if (n < 0 && would_block(errno)) {
    at.empty = at.write_error == 0;
  } else {
    end(at, n == 0 ? 0 : errno);
  }
  return 0;
}

StreamStatus TcpNetwork::status(int rank) {
  Peer& at = peer(rank);
  // A stream that was empty a moment ago is open; the next wait tells of its end.
  if (!at.ended && !std::exchange(at.empty, false)) {
    char byte = 0;
    const auto n = ::recv(at.socket.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n == 0 || (n < 0 && !would_block(errno))) end(at, n == 0 ? 0 : errno);
  }
  if (!at.ended) return {};
  return {at.read_error.empty() ? StreamState::closed : StreamState::broken, at.read_error};
}

void TcpNetwork::wait(std::span<const StreamInterest> interests, double until) {
  std::vector<pollfd> polls = {{wake_.fd(), POLLIN, 0}};
  bool ended = false;
  for (const StreamInterest& interest : interests) {
    const Peer& at = peer(interest.peer);
    ended = ended || at.ended;
    const int events = (interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0);
    if (events != 0) polls.push_back({at.socket.get(), static_cast<short>(events), 0});
  }
  const int found = ::poll(polls.data(), polls.size(), ended ? 0 : poll_milliseconds(until - now()));
  if (found > 0 && polls[0].revents != 0) wake_.clear();
}

double TcpNetwork::now() { return seconds_since(start_); }

/// Whether all that was written to a peer has reached its host. What it still sends is read and dropped: bytes that
/// nobody reads would reset the connection.
bool TcpNetwork::drained(Peer& peer) {
  char buffer[16384];
  ssize_t n = 1;
  while (n > 0) n = ::recv(peer.socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (n == 0 || !would_block(errno)) return true;
  int unsent = 0;
  return ::ioctl(peer.socket.get(), SIOCOUTQ, &unsent) != 0 || unsent == 0;
}

void TcpNetwork::close(double until) noexcept {
  for (Peer& peer : peers_) {
    if (peer.socket) ::shutdown(peer.socket.get(), SHUT_WR);
  }
  constexpr int kPollMilliseconds = 2;  // no event tells that bytes have arrived
  const auto waits = [&](Peer& peer) { return peer.socket && !peer.ended && !drained(peer); };
  while (std::ranges::any_of(peers_, waits) && now() < until) ::poll(nullptr, 0, kPollMilliseconds);
  for (Peer& peer : peers_) {
    if (peer.socket) ::shutdown(peer.socket.get(), SHUT_RDWR);
    peer.ended = true;
  }
}

}  // namespace bantam
