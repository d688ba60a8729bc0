// Network: byte streams between one rank and every other. Mesh makes messages of them; sockets, queues between threads
// and a simulator implement them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace bantam {

/// How a stream to another rank stands.
enum class StreamState : std::uint8_t {
  open,
  closed,  ///< the other side closed it, or ended, and all bytes that came before have been read
  broken   ///< bytes may have been lost: `StreamStatus::reason` says how ("Connection reset by peer")
};
struct StreamStatus {
  StreamState state = StreamState::open;
  std::string reason;  ///< why the stream is broken
};

/// The events that a rank waits for on its stream to `peer`: bytes to read, space to write, or either.
struct StreamInterest {
  int peer = 0;
  bool read = false, write = false;
};

/// One stream in each direction to every other rank of a run; bytes arrive in the order in which they were written. No
/// call blocks but wait() and close(). write, read, status and close are called by one thread at a time (Mesh has a
/// lock); wait() runs beside them on another thread; wake() and now() are for any thread.
class Network {
 public:
  virtual ~Network() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The host of a rank, for messages to people; "" where it is not known.
  virtual std::string host(int rank) const = 0;
  /// Writes as many of `bytes` as there is room for now; returns how many: 0 where there is no room, or where the
  /// stream is not open. A write to a rank that has gone is no error here: status() tells it. Bytes that were accepted
  /// are the network's: the caller may change its own at once.
  virtual std::size_t write(int to, std::span<const std::byte> bytes) = 0;
  /// Reads up to bytes.size() bytes that have arrived; returns how many, 0 where there are none now.
  virtual std::size_t read(int from, std::span<std::byte> bytes) = 0;
  /// The state of the stream to and from `peer`: not `closed` before read() has returned every byte that came before.
  virtual StreamStatus status(int peer) = 0;
  /// Returns when one of the streams may be read or written as asked, or is no longer open (at once, if that is so
  /// already), when wake() has been called since the last wait returned, or at the time `until`, of now(). May return
  /// earlier. With no interests it waits for wake() and the time alone.
  virtual void wait(std::span<const StreamInterest> interests, double until) = 0;
  /// Seconds since some moment; never goes back.
  virtual double now() = 0;
  /// Makes the wait() of this rank return: the one under way, or else the next one.
  virtual void wake() noexcept = 0;
  /// Ends all streams. What has been written is still delivered, as far as the other sides live and read on; waits for
  /// that until the time `until` at most. Destruction without close() may lose what was written last.
  virtual void close(double until) noexcept = 0;
};

}  // namespace bantam
