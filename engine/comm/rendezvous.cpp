// Rank 0 gathers all others at one address and tells each where the rest listen; of a pair, the higher rank connects.
// Then all say that they are connected, and rank 0 lets them go: the end is common, whether good or bad.
#include "bantam/engine/comm/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/text.h"
#include "bantam/engine/comm/communicator.h"
#include "bantam/engine/comm/handshake.h"

namespace bantam {
namespace {

using handshake::Json;
using handshake::number_at;
using handshake::text_at;

constexpr double kPollSeconds = 0.1;     // how long a wait lasts before time and stop are looked at
constexpr double kGreetingSeconds = 10;  // in which a visitor has to say who it is
constexpr double kPairSeconds = 30;      // in which ranks connect to each other once all have come
constexpr double kGraceSeconds = 5;      // in which rank 0's reasons arrive after a common deadline
constexpr std::size_t kMostVisitors = 512;
constexpr std::size_t kMostKnownBytes = 4 << 20;  // of a frame from a rank of this run

/// A connection to rank 0 of which it does not know yet who it is.
struct Visitor {
  FrameStream stream;
  std::string nonce;
  double since = 0;
};

/// The address of one rank, by which the other ranks connect to it.
struct Member {
  std::string host, address;  ///< its address as rank 0 sees it; empty: rank 0's own host
  int port = 0;               ///< where it listens for other ranks
};

/// The steps of a meeting that rank 0 and the other ranks have in common; subclasses add those that differ.
class Meeting {
 public:
  explicit Meeting(const RendezvousOptions& options)
      : options_(options), deadline_(options.timeout_seconds), data_(static_cast<std::size_t>(options.size)) {
    if (options_.host.empty()) options_.host = host_name();
    settle_address();
  }
  virtual ~Meeting() = default;

  RankConnections run() {
    try {
      gather();
      deadline_ = elapsed() + kPairSeconds;
      connect_pairs();
      agree();
    } catch (const CommunicationError& error) {
      tell(error.failure());
      throw;
    }
    RankConnections connections;
    for (const Member& member : members_) connections.hosts.push_back(member.host);
    connections.data = std::move(data_);
    connections.control = std::move(control_);
    return connections;
  }

 protected:
  /// Fills members_, control_, token_ and listener_.
  virtual void gather() = 0;
  /// Returns when all ranks are connected to all.
  virtual void agree() = 0;
  /// Reads what came from rank 0, or from all others; throws where that is a failure, or the end.
  virtual void look_at_control() = 0;

  double elapsed() const { return seconds_since(start_); }

  [[noreturn]] void fail(const RankFailure& failure) const {
    throw CommunicationError(fmt::format("the ranks cannot be connected: {}", failure.reason), failure);
  }
  [[noreturn]] void fail(const std::string& reason) const { fail({options_.rank, options_.host, reason}); }

  void look_at_stop() const {
    if (options_.stop && options_.stop()) fail("stopped while waiting for other ranks");
  }

  std::vector<FrameStream*> control_streams() {
    std::vector<FrameStream*> streams;
    for (FrameStream& stream : control_) streams.push_back(&stream);
    return streams;
  }

  std::string rank_and_host(int rank) const {
    const std::string& host = members_[static_cast<std::size_t>(rank)].host;
    return fmt::format("rank {}{}", rank, host.empty() ? "" : " on " + shown(host));
  }

  /// Says why to all that have come, as far as they listen within a second.
  void tell(const RankFailure& failure) {
    const double until = elapsed() + 1;
    for (FrameStream& stream : control_) {
      if (!stream.open()) continue;
      stream.send(handshake::to_text(handshake::message_of(failure)));
      stream.end_writing();
    }
    const auto waits = [](FrameStream* stream) { return stream->open(); };
    const auto streams = control_streams();
    // Bytes that still arrive are read and dropped: left in the socket, they would reset the connection.
    while (elapsed() < until && std::ranges::any_of(streams, waits)) {
      wait_for(streams, -1, -1, until - elapsed());
      for (FrameStream* stream : streams) {
        if (stream->open()) stream->receive();
        while (stream->next()) {
        }
      }
    }
  }

  /// Where all are on one host, they meet on its loopback interface, whatever name the launcher has for it.
  void settle_address() {
    if (!options_.all_local || options_.listener >= 0) return;
    std::string why;
    const auto addresses = resolve(options_.address, why);
    if (!std::ranges::any_of(addresses, &SocketAddress::is_loopback)) options_.address.host = "127.0.0.1";
  }

  /// Whether no other host can take part. A host's own name may be a loopback address on that host alone: it does not
  /// say so.
  bool on_loopback() const {
    const std::string& host = options_.address.host;
    return options_.all_local || host == "localhost" || host == "::1" || host.starts_with("127.");
  }

  std::string data_context(int from, int to) const { return fmt::format("data {} {} {}", token_, from, to); }

  /// To the ranks below this one, at once; from those above, as they come.
  void connect_pairs() {
    for (int rank = 0; rank < options_.rank; ++rank) connect_pair(rank);
    const auto missing = [&] {
      std::vector<int> ranks;
      for (int rank = options_.rank + 1; rank < options_.size; ++rank) {
        if (!data_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
      }
      return ranks;
    };
    std::vector<Visitor> visitors;
    while (!missing().empty()) {
      if (elapsed() > deadline_)
        fail(fmt::format("{} did not connect to rank {} at {} within {}", names_of_ranks(missing()), options_.rank,
                         own_address(listener_).text(), format_duration(kPairSeconds)));
      look_at_stop();
      wait_for_visitors(visitors, listener_);
      look_at_control();
      while (FileDescriptor socket = accept_from(listener_))
        visitors.push_back({FrameStream(std::move(socket)), "", elapsed()});
      std::erase_if(visitors, [&](Visitor& visitor) { return meet_pair(visitor); });
    }
    listener_.reset();
  }

  void wait_for_visitors(std::vector<Visitor>& visitors, const FileDescriptor& listener) {
    auto streams = control_streams();
    for (Visitor& visitor : visitors) streams.push_back(&visitor.stream);
    wait_for(streams, -1, listener.get(), kPollSeconds);
  }

  void connect_pair(int rank) {
    const Member& member = members_[static_cast<std::size_t>(rank)];
    const Endpoint endpoint{member.address, member.port};
    std::string why;
    for (const SocketAddress& address : resolve(endpoint, why)) {
      FileDescriptor socket = connect_to(address, deadline_ - elapsed(), options_.stop, why);
      if (!socket) continue;
      FrameStream stream(std::move(socket));
      stream.send(handshake::sealed(options_.secret, data_context(options_.rank, rank), {{"from", options_.rank}}));
      while (!stream.flush()) wait_for({&stream}, -1, -1, kPollSeconds);
      data_[static_cast<std::size_t>(rank)] = stream.release();
      return;
    }
    look_at_stop();
    look_at_control();
    fail(fmt::format("rank {} on {} cannot connect to {} at {}: {}", options_.rank, shown(options_.host),
                     rank_and_host(rank), to_text(endpoint), why));
  }

  /// Whether the visitor has become one of the pair, or is to be dropped.
  bool meet_pair(Visitor& visitor) {
    visitor.stream.receive();
    const auto frame = visitor.stream.next();
    if (!frame) return !visitor.stream.open() || elapsed() > visitor.since + kGreetingSeconds;
    for (int rank = options_.rank + 1; rank < options_.size; ++rank) {
      FileDescriptor& socket = data_[static_cast<std::size_t>(rank)];
      if (socket || !handshake::unsealed(options_.secret, data_context(rank, options_.rank), *frame)) continue;
      socket = visitor.stream.release();
      break;
    }
    return true;
  }

  RendezvousOptions options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double deadline_;
  std::string token_;        ///< identifies this meeting; random
  FileDescriptor listener_;  ///< for pairs
  std::vector<Member> members_;
  std::vector<FileDescriptor> data_;
  std::vector<FrameStream> control_;
};

/// Rank 0's side.
class Gathering final : public Meeting {
 public:
  explicit Gathering(const RendezvousOptions& options) : Meeting(options) {
    const auto size = static_cast<std::size_t>(options_.size);
    members_.resize(size);
    control_.resize(size);
    connected_.resize(size);
    token_ = handshake::random_number();
  }

 private:
  void gather() override {
    door_ = listen();
    SocketAddress address = own_address(door_);
    listen_for_pairs(address);
    members_[0] = {options_.host, "", own_address(listener_).port()};
    while (!missing().empty()) {
      if (elapsed() > deadline_) fail_missing();
      look_at_stop();
      wait_for_visitors(visitors_, door_);
      look_at_control();
      while (FileDescriptor socket = accept_from(door_)) welcome_visitor(std::move(socket));
      std::erase_if(visitors_, [&](Visitor& visitor) { return meet(visitor); });
    }
    door_.reset();
    visitors_.clear();
    send_welcomes();
  }

  FileDescriptor listen() {
    if (options_.listener >= 0) {
      ::fcntl(options_.listener, F_SETFD, FD_CLOEXEC);
      ::fcntl(options_.listener, F_SETFL, O_NONBLOCK);
      return FileDescriptor(options_.listener);
    }
    std::string why;
    FileDescriptor door;
    if (on_loopback()) {
      for (const SocketAddress& address : resolve(options_.address, why)) {
        if (!door) door = listen_at(address, why);
      }
    } else {
      door = listen_anywhere(options_.address.port, why);
    }
    if (!door)
      fail(fmt::format("rank 0 on {} cannot listen at {}: {}; another port can be chosen with MASTER_PORT",
                       shown(options_.host), to_text(options_.address), why));
    return door;
  }

  /// On the same interface as the door, at any port.
  void listen_for_pairs(const SocketAddress& door) {
    std::string why;
    if (door.is_loopback()) {
      const auto addresses = resolve({door.number(), 0}, why);
      if (!addresses.empty()) listener_ = listen_at(addresses.front(), why);
    } else {
      listener_ = listen_anywhere(0, why);
    }
    if (!listener_) fail(fmt::format("rank 0 on {} cannot listen: {}", shown(options_.host), why));
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < options_.size; ++rank) {
      if (!control_[static_cast<std::size_t>(rank)].socket()) ranks.push_back(rank);
    }
    return ranks;
  }

  [[noreturn]] void fail_missing() const {
    const auto ranks = missing();
    fail(fmt::format("{} of {} did not connect to rank 0 on {} at {} within {}{}", names_of_ranks(ranks), options_.size,
                     shown(options_.host), where(), format_duration(options_.timeout_seconds),
                     refused_ == 0 ? "" : fmt::format(" ({} refused, the last one {})", refused_, last_refused_)));
  }

  std::string where() const { return options_.listener >= 0 ? own_address(door_).text() : to_text(options_.address); }

  void welcome_visitor(FileDescriptor socket) {
    if (visitors_.size() >= kMostVisitors) return;
    visitors_.push_back({FrameStream(std::move(socket)), handshake::random_number(), elapsed()});
    visitors_.back().stream.send(
        handshake::to_text({{"bantam", handshake::kProtocol}, {"nonce", visitors_.back().nonce}}));
  }

  void refuse(Visitor& visitor, const std::string& why) {
    ++refused_;
    last_refused_ = fmt::format("{}: {}", peer_address(visitor.stream.socket()).text(), why);
    visitor.stream.send(handshake::to_text({{"refused", why}}));
    visitor.stream.end_writing();
  }

  /// Whether the visitor has become a member, or is to be dropped.
  bool meet(Visitor& visitor) {
    visitor.stream.receive();
    const auto frame = visitor.stream.next();
    if (!frame) return !visitor.stream.open() || elapsed() > visitor.since + kGreetingSeconds;
    const auto hello = handshake::unsealed(options_.secret, "hello " + visitor.nonce, *frame);
    if (!hello) {
      refuse(visitor, "wrong secret");
    } else if (text_at(*hello, "run") != options_.run) {
      refuse(visitor, fmt::format("a rank of the run \"{}\" came to the run \"{}\"", shown(text_at(*hello, "run")),
                                  shown(options_.run)));
    } else {
      admit(visitor, *hello);
    }
    return true;
  }

  void admit(Visitor& visitor, const Json& hello) {
    const int rank = number_at(hello, "rank");
    const std::string address = peer_address(visitor.stream.socket()).number();
    const Member member{text_at(hello, "host"), address, number_at(hello, "port")};
    const std::string fault = fault_of(hello, rank, member);
    visitor.stream.set_most_bytes(kMostKnownBytes);
    if (!fault.empty()) {
      control_.push_back(std::move(visitor.stream));  // so that it is told, too
      fail({std::max(rank, 0), member.host, fault});
    }
    const auto at = static_cast<std::size_t>(rank);
    members_[at] = member;
    if (peer_address(visitor.stream.socket()).is_loopback()) members_[at].address.clear();
    nonces_.resize(control_.size());
    nonces_[at] = text_at(hello, "nonce");
    control_[at] = std::move(visitor.stream);
  }

  /// Describes how a rank's hello disagrees with rank 0, or with a rank that came earlier; empty: it agrees.
  std::string fault_of(const Json& hello, int rank, const Member& member) const {
    const std::string who = fmt::format("rank {} on {} ({})", rank, shown(member.host), member.address);
    const std::string self = fmt::format("rank 0 on {}", shown(options_.host));
    if (const int protocol = number_at(hello, "protocol"); protocol != handshake::kProtocol)
      return fmt::format("{} speaks version {} of the ranks' protocol, {} speaks {}", who, protocol, self,
                         handshake::kProtocol);
    if (const std::string version = text_at(hello, "version"); version != options_.version)
      return fmt::format("{} runs Bantam \"{}\", {} runs \"{}\": all ranks need the same version", who, shown(version),
                         self, shown(options_.version));
    if (const int size = number_at(hello, "size"); size != options_.size)
      return fmt::format("{} was started as one of {} ranks, {} as one of {}", who, size, self, options_.size);
    if (rank == 0)
      return fmt::format("two processes say that they are rank 0: {} and {}", who.substr(7), self.substr(7));
    if (rank < 0 || rank >= options_.size) return fmt::format("expected ranks 0 … {}, not {}", options_.size - 1, who);
    const auto at = static_cast<std::size_t>(rank);
    if (control_[at].socket())
      return fmt::format("two processes say that they are rank {}: one on {} ({}), one on {} ({})", rank,
                         shown(members_[at].host), peer_address(control_[at].socket()).number(), shown(member.host),
                         member.address);
    return "";
  }

  void send_welcomes() {
    Json ranks = Json::array();
    for (const Member& member : members_)
      ranks.push_back({{"host", member.host}, {"address", member.address}, {"port", member.port}});
    const Json welcome = {{"token", token_}, {"ranks", std::move(ranks)}};
    for (std::size_t rank = 1; rank < members_.size(); ++rank)
      control_[rank].send(handshake::sealed(options_.secret, "welcome " + nonces_[rank], welcome));
  }

  void look_at_control() override {
    for (int rank = 1; rank < options_.size; ++rank) {
      FrameStream& stream = control_[static_cast<std::size_t>(rank)];
      if (!stream.socket()) continue;
      stream.receive();
      while (const auto frame = stream.next()) {
        const Json message = handshake::parse(*frame);
        if (const auto failure = handshake::failure_in(message)) fail(*failure);
        if (message.contains("connected")) {
          connected_[static_cast<std::size_t>(rank)] = true;
          break;  // what follows is the watch's
        }
      }
      if (!stream.open())
        fail({rank, members_[static_cast<std::size_t>(rank)].host,
              fmt::format("{} went away while ranks were being connected", rank_and_host(rank))});
    }
  }

  void agree() override {
    const auto waits_for = [&] {
      std::vector<int> ranks;
      for (int rank = 1; rank < options_.size; ++rank) {
        if (!connected_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
      }
      return ranks;
    };
    while (!waits_for().empty()) {
      if (elapsed() > deadline_ + kGraceSeconds)
        fail(fmt::format("{} could not connect to all other ranks within {}", names_of_ranks(waits_for()),
                         format_duration(kPairSeconds)));
      look_at_stop();
      wait_for(control_streams(), -1, -1, kPollSeconds);
      look_at_control();
    }
    for (std::size_t rank = 1; rank < control_.size(); ++rank) control_[rank].send(handshake::to_text({{"go", true}}));
  }

  FileDescriptor door_;
  std::vector<Visitor> visitors_;
  std::vector<std::string> nonces_;
  std::vector<bool> connected_;
  int refused_ = 0;
  std::string last_refused_;
};

/// Any other rank's side.
class Joining final : public Meeting {
 public:
  explicit Joining(const RendezvousOptions& options) : Meeting(options) {}

 private:
  void gather() override {
    connect_to_rank_0();
    listen_for_pairs();
    const std::string nonce = handshake::random_number();
    const Json hello = {{"protocol", handshake::kProtocol},
                        {"version", options_.version},
                        {"run", options_.run},
                        {"rank", options_.rank},
                        {"size", options_.size},
                        {"host", options_.host},
                        {"port", own_address(listener_).port()},
                        {"nonce", nonce}};
    control_[0].set_most_bytes(kMostKnownBytes);
    control_[0].send(handshake::sealed(options_.secret, "hello " + rank_0_nonce_, hello));
    deadline_ += kGraceSeconds;
    const auto welcome = handshake::unsealed(options_.secret, "welcome " + nonce, next_frame());
    if (!welcome) fail(fmt::format("what listens at {} does not know the run's secret", to_text(options_.address)));
    read_welcome(*welcome);
  }

  /// Tries again until rank 0 is there, and greets.
  void connect_to_rank_0() {
    std::string why;
    for (double pause = 0.02;; pause = std::min(pause * 1.5, 1.0)) {
      for (const SocketAddress& address : resolve(options_.address, why)) {
        const double left = std::clamp(deadline_ - elapsed(), 0.05, 10.0);
        if (FileDescriptor socket = connect_to(address, left, options_.stop, why)) {
          FrameStream stream(std::move(socket));
          if (is_greeted(stream, why)) {
            control_.push_back(std::move(stream));
            return;
          }
        }
      }
      look_at_stop();
      if (elapsed() + pause > deadline_)
        fail(fmt::format("rank {} on {} could not connect to rank 0 at {} within {}: {}", options_.rank,
                         shown(options_.host), to_text(options_.address), format_duration(options_.timeout_seconds),
                         why));
      std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    }
  }

  /// Whether rank 0 of a Bantam run listens there: it says so first.
  bool is_greeted(FrameStream& stream, std::string& why) {
    const double until = std::min(deadline_, elapsed() + kGreetingSeconds);
    std::optional<std::string> frame;
    while (!frame && stream.open() && elapsed() < until && !(options_.stop && options_.stop())) {
      wait_for({&stream}, -1, -1, kPollSeconds);
      stream.receive();
      frame = stream.next();
    }
    const Json greeting = frame ? handshake::parse(*frame) : Json();
    const int protocol = number_at(greeting, "bantam");
    rank_0_nonce_ = text_at(greeting, "nonce");
    if (protocol > 0 && !rank_0_nonce_.empty()) return true;
    why = "what listens there is not rank 0 of a run of Bantam";
    return false;
  }

  void listen_for_pairs() {
    std::string why;
    const SocketAddress address = own_address(control_[0].socket());
    if (on_loopback()) {
      const auto addresses = resolve({address.number(), 0}, why);
      if (!addresses.empty()) listener_ = listen_at(addresses.front(), why);
    } else {
      listener_ = listen_anywhere(0, why);
    }
    if (!listener_) fail(fmt::format("rank {} on {} cannot listen: {}", options_.rank, shown(options_.host), why));
  }

  void read_welcome(const Json& welcome) {
    token_ = text_at(welcome, "token");
    const auto ranks = welcome.find("ranks");
    if (ranks != welcome.end() && ranks->is_array()) {
      for (const Json& rank : *ranks)
        members_.push_back({text_at(rank, "host"), text_at(rank, "address"), number_at(rank, "port")});
    }
    if (static_cast<int>(members_.size()) != options_.size)
      fail(fmt::format("rank 0 at {} names {} ranks, rank {} was started as one of {}", to_text(options_.address),
                       members_.size(), options_.rank, options_.size));
    // Who is on rank 0's host is reached where rank 0 is.
    for (Member& member : members_) {
      if (member.address.empty()) member.address = peer_address(control_[0].socket()).number();
    }
  }

  /// Rank 0's next frame that is no failure.
  std::string next_frame() {
    for (;;) {
      look_at_stop();
      control_[0].receive();
      if (auto frame = control_[0].next()) {
        const Json message = handshake::parse(*frame);
        if (const auto failure = handshake::failure_in(message)) fail(*failure);
        if (message.contains("refused"))
          fail(fmt::format("rank 0 at {} refused rank {} on {}: {}", to_text(options_.address), options_.rank,
                           shown(options_.host), shown(text_at(message, "refused"), 400)));
        return *frame;
      }
      if (!control_[0].open())
        fail(
            {0, "", fmt::format("rank 0 at {} went away while ranks were being connected", to_text(options_.address))});
      if (elapsed() > deadline_)
        fail({0, "",
              fmt::format("rank 0 at {} did not answer rank {} on {} within {}", to_text(options_.address),
                          options_.rank, shown(options_.host), format_duration(options_.timeout_seconds))});
      wait_for(control_streams(), -1, -1, kPollSeconds);
    }
  }

  void look_at_control() override {
    control_[0].receive();
    while (const auto frame = control_[0].next()) {
      if (const auto failure = handshake::failure_in(handshake::parse(*frame))) fail(*failure);
    }
    if (!control_[0].open())
      fail({0, members_.empty() ? "" : members_[0].host,
            fmt::format("rank 0 at {} went away while ranks were being connected", to_text(options_.address))});
  }

  void agree() override {
    control_[0].send(handshake::to_text({{"connected", true}}));
    deadline_ = elapsed() + kPairSeconds + 2 * kGraceSeconds;
    while (!handshake::parse(next_frame()).contains("go")) {
    }
  }

  std::string rank_0_nonce_;
};

}  // namespace

std::string names_of_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kNamed = 10;
  std::vector<std::string> names;
  for (const int rank : ranks) {
    if (names.size() < kNamed) names.push_back(std::to_string(rank));
  }
  if (ranks.size() > kNamed) names.push_back(fmt::format("{} more", ranks.size() - kNamed));
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", join(names, ", ", " and "));
}

RankConnections rendezvous(const RendezvousOptions& options) {
  if (options.rank == 0) return Gathering(options).run();
  return Joining(options).run();
}

}  // namespace bantam
