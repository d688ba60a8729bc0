// Short messages over a socket, each whole: what ranks say to each other beside the run's data.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/engine/comm/sockets.h"

namespace bantam {

/// A frame is its length (4 bytes, little-endian) and its bytes. No call blocks. Not thread-safe.
class FrameStream {
 public:
  FrameStream() = default;
  /// Longer frames than `most_bytes` end the stream: nobody makes this side allocate more.
  explicit FrameStream(FileDescriptor socket, std::size_t most_bytes = 4096)
      : socket_(std::move(socket)), most_bytes_(most_bytes) {}

  bool open() const { return static_cast<bool>(socket_) && ended_.empty(); }
  /// Why it is no longer open: "closed" by the other side, or what went wrong.
  const std::string& ended() const { return ended_; }
  /// Whether it is the other side's doing: it closed the socket, or its process ended.
  bool closed_by_peer() const { return closed_by_peer_; }
  const FileDescriptor& socket() const { return socket_; }
  /// For frames from somebody who is known by now.
  void set_most_bytes(std::size_t most_bytes) { most_bytes_ = most_bytes; }

  /// Writes a frame, or keeps what there is no room for until flush().
  void send(std::string_view frame);
  /// Writes what has been kept; returns whether nothing is left.
  bool flush();
  /// Reads what has come; what came before the end is there to be had from next(), even where the stream has ended.
  void receive();
  /// The next whole frame that has come.
  std::optional<std::string> next();
  /// The events that poll() shall wait for: bytes to read and, while some are queued, space to write.
  short events() const;
  /// The socket, for other uses, once nothing is kept in either direction.
  FileDescriptor release() { return std::move(socket_); }
  /// Nothing more is written; the other side reads the end after what was sent.
  void end_writing();
  void close() { socket_.reset(); }

 private:
  FileDescriptor socket_;
  std::size_t most_bytes_ = 4096;
  std::string in_, out_;
  std::string ended_;
  bool closed_by_peer_ = false;
};

/// Waits until one of the streams can be read from, or written to where something is kept, `wake` (may be -1) or
/// `listener` (may be -1) is readable, or `seconds` are over. Streams that are not open are left out.
void wait_for(const std::vector<FrameStream*>& streams, int wake, int listener, double seconds);

}  // namespace bantam
