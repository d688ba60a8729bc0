// PeerStream: messages of one pair of ranks, as frames on their byte stream. Mesh has one for each other rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bantam/engine/comm/communicator.h"
#include "bantam/engine/comm/network.h"

namespace bantam {

/// The beginning of everything that travels. Both sides have the byte order of x86-64.
struct Frame {
  enum class Kind : std::uint32_t {
    whole = 0xba47a001,  ///< a small message: its bytes follow
    message,             ///< a message of `bytes` bytes begins: frames `piece` follow, then `end`
    piece,               ///< `bytes` bytes of it
    end,                 ///< the message is complete
    failure,             ///< rank `number` failed; `bytes` bytes of text follow: its host, a newline, the reason
    alive,               ///< nothing but that the rank lives
    goodbye              ///< the rank has done its part; the stream's end is none of a dead rank
  };
  Kind kind = Kind::alive;
  std::uint32_t number = 0;  ///< which message it is, from 0 on
  std::uint64_t bytes = 0;
};

/// Sends and receives without blocking. Bytes of messages go from and to the caller's memory, small ones through a
/// buffer; a message that is abandoned is never taken for complete by the other side. A small message that comes before
/// it is asked for is kept, so that what follows it (a failure) is read; a large one waits in the network.
class PeerStream {
 public:
  PeerStream(Network& network, int peer) : network_(network), peer_(peer) {}

  void send(std::span<const std::byte> bytes);
  void receive(std::span<std::byte> bytes);
  /// Whether a message of this rank is not yet with the network, or one from the peer not yet complete.
  bool busy() const { return unsent_ > 0 || !expected_.empty(); }
  /// Forgets the messages under way and their memory.
  void drop();

  /// Frames without payload, sent before the next piece or message.
  void say_alive();
  void say_goodbye();
  void say_failure(const RankFailure& failure);

  /// Writes what there is room for; whether anything was written.
  bool write_some();
  /// Reads what can be placed; whether anything was read.
  bool read_some();
  /// Reads and forgets, so that the peer can write on.
  void discard();
  bool wants_write() const;
  bool wants_read() const;

  int peer() const { return peer_; }
  bool left() const { return left_; }
  /// A failure that the peer told.
  const std::optional<RankFailure>& heard() const { return heard_; }
  /// Describes the error in the peer's messages; empty: there is none.
  const std::string& fault() const { return fault_; }

 private:
  bool next_frame();
  void say(Frame frame, std::span<const std::byte> body = {});
  void begin_message(std::span<const std::byte> bytes);
  void begin_piece();
  bool read_header();
  bool read_body();
  bool read_piece();
  void heed(const Frame& frame);
  void heed_body();
  void match();
  bool sizes_agree(std::uint64_t bytes);

  Network& network_;
  int peer_ = 0;

  std::vector<std::byte> control_;  // frames that come before `piece_`
  std::size_t control_written_ = 0;
  bool ends_message_ = false;         // with control_, a message has been sent
  std::span<const std::byte> piece_;  // of the message under way
  std::size_t padding_ = 0;           // bytes of an abandoned piece that the peer still expects
  std::span<const std::byte> rest_;   // of the message, after the piece
  bool in_message_ = false;
  std::deque<std::span<const std::byte>> queue_;
  std::vector<std::byte> said_;  // frames for the next boundary
  std::uint32_t sent_number_ = 0;
  std::size_t unsent_ = 0;

  std::array<std::byte, sizeof(Frame)> header_{};
  std::size_t header_read_ = 0;
  std::optional<Frame> body_of_;  // a frame whose body is being read
  std::vector<std::byte> body_;
  std::size_t body_read_ = 0;
  std::optional<Frame> announced_;  // a message that nobody has asked for yet
  bool receiving_ = false;          // the first of expected_ is under way
  std::size_t received_ = 0;        // bytes of it
  std::size_t piece_left_ = 0;
  std::deque<std::span<std::byte>> expected_;
  std::deque<std::vector<std::byte>> early_;
  std::uint32_t received_number_ = 0, matched_number_ = 0;
  bool left_ = false;
  std::optional<RankFailure> heard_;
  std::string fault_;
};

}  // namespace bantam
