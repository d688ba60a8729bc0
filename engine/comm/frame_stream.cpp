// Buffers on both sides of a non-blocking socket.
#include "bantam/engine/comm/frame_stream.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>

#include <poll.h>
#include <sys/socket.h>

#include "bantam/base/plain_words.h"
#include "bantam/engine/comm/sockets.h"

namespace bantam {
namespace {

constexpr std::size_t kLengthBytes = 4;

}  // namespace

void FrameStream::send(std::string_view frame) {
  for (std::size_t i = 0; i < kLengthBytes; ++i) out_.push_back(static_cast<char>(frame.size() >> (8 * i) & 0xff));
  out_ += frame;
  flush();
}

bool FrameStream::flush() {
  if (!socket_) return false;
  std::size_t written = 0;
  while (written < out_.size()) {
    const auto n = ::send(socket_.get(), out_.data() + written, out_.size() - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      written += static_cast<std::size_t>(n);
    } else {
      // Drops the queue of a broken stream. What the peer wrote before can still be read: receive() finds the end.
      if (!would_block(errno)) out_.clear(), written = 0;
      break;
    }
  }
  out_.erase(0, written);
  return out_.empty();
}

void FrameStream::receive() {
  char buffer[16384];
  while (open()) {
    const auto n = ::recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n < 0 && would_block(errno)) return;
    if (n <= 0) {
      // A process that is killed before it has read everything resets its connections.
      closed_by_peer_ = n == 0 || errno == ECONNRESET;
      ended_ = closed_by_peer_ ? "closed" : reason_text(errno);
      return;
    }
    in_.append(buffer, static_cast<std::size_t>(n));
    if (in_.size() > most_bytes_ + kLengthBytes + sizeof(buffer)) return;  // next() is to be called before more is read
  }
}

std::optional<std::string> FrameStream::next() {
  if (in_.size() < kLengthBytes) return std::nullopt;
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(in_[i])) << (8 * i);
  if (length > most_bytes_) {
    in_.clear();
    ended_ = "unexpected bytes";
    return std::nullopt;
  }
  if (in_.size() < kLengthBytes + length) return std::nullopt;
  std::string frame = in_.substr(kLengthBytes, length);
  in_.erase(0, kLengthBytes + length);
  return frame;
}

short FrameStream::events() const { return static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT); }

void FrameStream::end_writing() {
  if (socket_) ::shutdown(socket_.get(), SHUT_WR);
}

void wait_for(const std::vector<FrameStream*>& streams, int wake, int listener, double seconds) {
  std::vector<pollfd> polls;
  for (const FrameStream* stream : streams) {
    if (stream->open()) polls.push_back({stream->socket().get(), stream->events(), 0});
  }
  for (const int fd : {wake, listener}) {
    if (fd >= 0) polls.push_back({fd, POLLIN, 0});
  }
  ::poll(polls.data(), polls.size(), static_cast<int>(std::ceil(std::clamp(seconds, 0.0, 3600.0) * 1000)));
  for (FrameStream* stream : streams) {
    if (stream->open()) stream->flush();
  }
}

}  // namespace bantam
