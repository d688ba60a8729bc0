// Frames written and read in pieces of whatever size the network accepts.
#include "bantam/engine/comm/peer_stream.h"

#include <algorithm>
#include <cstring>

namespace bantam {
namespace {

constexpr std::size_t kWhole = 4096;        // most bytes of a message that is copied into its frame
constexpr std::size_t kPiece = 1 << 20;     // between two of which a failure can be told
constexpr std::size_t kFailureText = 8192;  // longer reasons are cut
constexpr std::size_t kEarly = 64;          // small messages kept before they are asked for

void append(std::vector<std::byte>& bytes, const Frame& frame, std::span<const std::byte> body = {}) {
  const auto header = std::as_bytes(std::span(&frame, 1));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.insert(bytes.end(), body.begin(), body.end());
}

}  // namespace

void PeerStream::send(std::span<const std::byte> bytes) {
  queue_.push_back(bytes);
  ++unsent_;
}

void PeerStream::receive(std::span<std::byte> bytes) {
  expected_.push_back(bytes);
  match();
}

void PeerStream::drop() {
  padding_ += piece_.size();
  piece_ = {};
  rest_ = {};
  in_message_ = false;
  queue_.clear();
  unsent_ = 0;
  ends_message_ = false;
  expected_.clear();
  receiving_ = false;
}

void PeerStream::say(Frame frame, std::span<const std::byte> body) {
  frame.bytes = body.size();
  append(said_, frame, body);
}
void PeerStream::say_goodbye() { say({.kind = Frame::Kind::goodbye}); }
void PeerStream::say_alive() {
  if (!left_ && !wants_write()) say({.kind = Frame::Kind::alive});
}
void PeerStream::say_failure(const RankFailure& failure) {
  const std::string text = (failure.host + "\n" + failure.reason).substr(0, kFailureText);
  say({.kind = Frame::Kind::failure, .number = static_cast<std::uint32_t>(failure.rank)},
      std::as_bytes(std::span(text)));
}

bool PeerStream::wants_write() const {
  return !left_ && (control_written_ < control_.size() || !piece_.empty() || padding_ > 0 || in_message_ ||
                    !queue_.empty() || !said_.empty());
}

bool PeerStream::wants_read() const {
  return !left_ && fault_.empty() && !announced_ && (early_.size() < kEarly || !expected_.empty());
}

// Sending.

bool PeerStream::write_some() {
  static constexpr std::array<std::byte, 4096> kZeros{};
  bool moved = false;
  while (!left_) {
    std::span<const std::byte> bytes = std::span<const std::byte>(control_).subspan(control_written_);
    const bool control = !bytes.empty();
    if (!control) bytes = !piece_.empty() ? piece_ : std::span(kZeros).first(std::min(padding_, kZeros.size()));
    if (bytes.empty()) {
      if (!next_frame()) return moved;
      continue;
    }
    const std::size_t written = network_.write(peer_, bytes);
    moved = moved || written > 0;
    if (control) {
      control_written_ += written;
      if (control_written_ == control_.size() && ends_message_) --unsent_;
      if (control_written_ == control_.size()) ends_message_ = false;
    } else if (!piece_.empty()) {
      piece_ = piece_.subspan(written);
    } else {
      padding_ -= written;
    }
    if (written < bytes.size()) break;
  }
  return moved;
}

/// Makes up the next frames, at a boundary; whether there were any.
bool PeerStream::next_frame() {
  control_.clear();
  control_written_ = 0;
  if (!said_.empty()) {
    control_.swap(said_);
  } else if (in_message_) {
    begin_piece();
  } else if (!queue_.empty()) {
    begin_message(queue_.front());
    queue_.pop_front();
  }
  return !control_.empty();
}

void PeerStream::begin_message(std::span<const std::byte> bytes) {
  if (bytes.size() <= kWhole) {
    append(control_, {Frame::Kind::whole, sent_number_++, bytes.size()}, bytes);
    ends_message_ = true;
    return;
  }
  append(control_, {Frame::Kind::message, sent_number_, bytes.size()});
  in_message_ = true;
  rest_ = bytes;
  begin_piece();
}

void PeerStream::begin_piece() {
  if (rest_.empty()) {
    append(control_, {Frame::Kind::end, sent_number_++, 0});
    in_message_ = false;
    ends_message_ = true;
    return;
  }
  piece_ = rest_.first(std::min(rest_.size(), kPiece));
  rest_ = rest_.subspan(piece_.size());
  append(control_, {Frame::Kind::piece, sent_number_, piece_.size()});
}

// Receiving.

bool PeerStream::read_some() {
  bool moved = false;
  while (wants_read()) {
    const bool more = piece_left_ > 0 ? read_piece() : body_of_ ? read_body() : read_header();
    if (!more) return moved;
    moved = true;
  }
  return moved;
}

bool PeerStream::read_header() {
  const std::size_t read = network_.read(peer_, std::span(header_).subspan(header_read_));
  header_read_ += read;
  if (header_read_ == header_.size()) {
    header_read_ = 0;
    Frame frame;
    std::memcpy(&frame, header_.data(), sizeof frame);
    heed(frame);
  }
  return read > 0;
}

bool PeerStream::read_body() {
  const std::size_t read = network_.read(peer_, std::span(body_).subspan(body_read_));
  body_read_ += read;
  if (body_read_ == body_.size()) heed_body();
  return read > 0;
}

bool PeerStream::read_piece() {
  if (!receiving_) return false;  // dropped
  const std::size_t read = network_.read(peer_, expected_.front().subspan(received_, piece_left_));
  received_ += read;
  piece_left_ -= read;
  return read > 0;
}

void PeerStream::discard() {
  std::array<std::byte, 4096> bytes;
  while (network_.read(peer_, bytes) > 0) {
  }
}

void PeerStream::heed(const Frame& frame) {
  using Kind = Frame::Kind;
  const bool in_order = frame.number == received_number_;
  if (frame.kind == Kind::whole && in_order && !receiving_ && frame.bytes <= kWhole) {
    body_of_ = frame;
  } else if (frame.kind == Kind::failure && frame.bytes <= kFailureText) {
    body_of_ = frame;
  } else if (frame.kind == Kind::message && in_order && !receiving_) {
    announced_ = frame;
    match();
  } else if (frame.kind == Kind::piece && in_order && receiving_ &&
             frame.bytes <= expected_.front().size() - received_) {
    piece_left_ = frame.bytes;
  } else if (frame.kind == Kind::end && in_order && receiving_ && received_ == expected_.front().size()) {
    receiving_ = false;
    expected_.pop_front();
    ++received_number_;
    ++matched_number_;
  } else if (frame.kind == Kind::goodbye) {
    left_ = true;
  } else if (frame.kind != Kind::alive) {
    fault_ = "rank " + std::to_string(network_.rank()) + " received bytes from rank " + std::to_string(peer_) +
             " that are not the frame that has to come (of another version of Bantam?)";
  }
  if (!body_of_) return;
  body_.resize(frame.bytes);
  body_read_ = 0;
  if (body_.empty()) heed_body();
}

void PeerStream::heed_body() {
  const Frame frame = *body_of_;
  body_of_.reset();
  if (frame.kind == Frame::Kind::whole) {
    ++received_number_;
    early_.push_back(body_);
    match();
    return;
  }
  const std::string text(reinterpret_cast<const char*>(body_.data()), body_.size());
  const std::size_t line = std::min(text.find('\n'), text.size());
  heard_ =
      RankFailure{static_cast<int>(frame.number), text.substr(0, line), text.substr(std::min(line + 1, text.size()))};
}

/// Brings what has come and what was asked for together, in order.
void PeerStream::match() {
  while (!receiving_ && !expected_.empty() && fault_.empty()) {
    if (!early_.empty()) {
      if (!sizes_agree(early_.front().size())) return;
      if (!early_.front().empty()) std::memcpy(expected_.front().data(), early_.front().data(), early_.front().size());
      early_.pop_front();
      expected_.pop_front();
      ++matched_number_;
    } else if (announced_) {
      if (!sizes_agree(announced_->bytes)) return;
      announced_.reset();
      receiving_ = true;
      received_ = 0;
    } else {
      return;
    }
  }
}

bool PeerStream::sizes_agree(std::uint64_t bytes) {
  if (bytes == expected_.front().size()) return true;
  fault_ = "rank " + std::to_string(network_.rank()) + " expects " + std::to_string(expected_.front().size()) +
           " bytes from rank " + std::to_string(peer_) + ", which sends " + std::to_string(bytes) + " (message " +
           std::to_string(matched_number_) + " between them)";
  return false;
}

}  // namespace bantam
