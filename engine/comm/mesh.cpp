// The ranks' streams driven together; what happens when one fails.
#include "bantam/engine/comm/mesh.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "bantam/engine/comm/peer_stream.h"

namespace bantam {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string seconds_text(double seconds) {
  const std::string text = std::to_string(seconds);
  return seconds == std::floor(seconds) ? std::to_string(static_cast<long long>(seconds)) : text;
}

std::string message_of(const RankFailure& failure) {
  return "rank " + std::to_string(failure.rank) + (failure.host.empty() ? "" : " on " + failure.host) + ": " +
         failure.reason;
}

}  // namespace

struct Mesh::Impl {
  struct Peer {
    PeerStream stream;
    double heard_at = 0;  // when bytes came last
  };
  using Lock = std::unique_lock<std::mutex>;

  std::unique_ptr<Network> network;
  MeshOptions options;
  int exceptions = std::uncaught_exceptions();
  std::vector<Peer> peers;   // all ranks but this one
  mutable std::mutex mutex;  // of all that follows, of the streams, and of read and write
  std::optional<RankFailure> failure;
  double farewell_until = 0;  // when nobody needs to be told any more
  bool exchanging = false;    // a thread is in exchange()
  double alive_at = kNever;   // when the others are told next that this rank lives

  /// While it lives, messages are under way. Their memory is the caller's: it is forgotten however the exchange ends.
  struct Exchange {
    Impl& mesh;
    explicit Exchange(Impl& impl) : mesh(impl) { mesh.exchanging = true; }
    ~Exchange() {
      mesh.exchanging = false;
      for (Peer& peer : mesh.peers) peer.stream.drop();
    }
  };

  void record(RankFailure found);
  void heed_failures();
  bool ended(Peer& peer);
  bool progress();
  bool busy() const;
  void watch_silence(double since, double now);
  void say_alive(double now);
  void wait_for_streams(Lock& lock, std::span<const StreamInterest> interests, double until);
  std::vector<StreamInterest> interests() const;
  double next_deadline(double since) const;
  void farewell(Lock& lock);
  void run_exchange(Lock& lock);
  void throw_failure() const;
};

/// The first failure counts; all others are told.
void Mesh::Impl::record(RankFailure found) {
  if (failure) return;
  failure = std::move(found);
  farewell_until = network->now() + options.farewell_seconds;
  for (Peer& peer : peers) {
    peer.stream.drop();
    peer.stream.say_failure(*failure);
  }
}

void Mesh::Impl::throw_failure() const {
  if (failure) throw CommunicationError(message_of(*failure), *failure);
}

/// Whether a peer's stream has ended; one that ended without a goodbye is a failure.
bool Mesh::Impl::ended(Peer& peer) {
  const StreamStatus status = network->status(peer.stream.peer());
  if (status.state == StreamState::open) return false;
  const int rank = peer.stream.peer();
  if (!peer.stream.left()) {
    record({rank, network->host(rank),
            status.state == StreamState::closed ? "died (connection closed)" : "connection lost: " + status.reason});
  }
  return true;
}

/// Records the first failure: those that peers report come first, then faults in their messages, then ended streams,
/// because a rank that closes due to another one's failure has reported that failure to somebody before.
void Mesh::Impl::heed_failures() {
  for (Peer& peer : peers) {
    if (peer.stream.heard()) record(*peer.stream.heard());
  }
  for (Peer& peer : peers) {
    if (!peer.stream.fault().empty()) record({network->rank(), network->host(network->rank()), peer.stream.fault()});
  }
  for (Peer& peer : peers) {
    if (!failure) ended(peer);
    if (failure || !peer.stream.left() || !peer.stream.busy()) continue;
    record({peer.stream.peer(), network->host(peer.stream.peer()),
            "ended while rank " + std::to_string(network->rank()) + " waited for it"});
  }
}

/// Reads and writes until nothing moves; whether all is well.
bool Mesh::Impl::progress() {
  for (bool moved = true; moved && !failure;) {
    moved = false;
    for (Peer& peer : peers) {
      if (peer.stream.write_some()) moved = true;
      if (peer.stream.read_some()) {
        moved = true;
        peer.heard_at = network->now();
      }
    }
    heed_failures();
  }
  return !failure;
}

bool Mesh::Impl::busy() const {
  return std::ranges::any_of(peers, [](const Peer& peer) { return peer.stream.busy(); });
}

double Mesh::Impl::next_deadline(double since) const {
  double until = alive_at;
  if (options.silence_seconds <= 0) return until;
  for (const Peer& peer : peers) {
    if (peer.stream.busy()) until = std::min(until, std::max(peer.heard_at, since) + options.silence_seconds);
  }
  return until;
}

/// A peer is silent when this rank has waited for it, and read nothing from it, for longer than the limit.
void Mesh::Impl::watch_silence(double since, double now) {
  if (options.silence_seconds <= 0) return;
  for (Peer& peer : peers) {
    if (!peer.stream.busy() || now < std::max(peer.heard_at, since) + options.silence_seconds) continue;
    const int rank = peer.stream.peer();
    record({rank, network->host(rank), "no message for " + seconds_text(options.silence_seconds) + " s"});
  }
}

void Mesh::Impl::say_alive(double now) {
  if (now < alive_at) return;
  alive_at = now + options.silence_seconds / 4;
  for (Peer& peer : peers) peer.stream.say_alive();
}

std::vector<StreamInterest> Mesh::Impl::interests() const {
  std::vector<StreamInterest> interests;
  for (const Peer& peer : peers) {
    const StreamInterest interest{peer.stream.peer(), peer.stream.wants_read(), peer.stream.wants_write()};
    if (interest.read || interest.write) interests.push_back(interest);
  }
  return interests;
}

void Mesh::Impl::wait_for_streams(Lock& lock, std::span<const StreamInterest> interests, double until) {
  struct Unlocked {
    Lock& lock;
    explicit Unlocked(Lock& held) : lock(held) { lock.unlock(); }
    ~Unlocked() { lock.lock(); }
  } const unlocked(lock);
  network->wait(interests, until);
}

/// Brings the last frames to the network, as far as the others accept them in time. What they still send is forgotten.
void Mesh::Impl::farewell(Lock& lock) {
  while (true) {
    std::vector<StreamInterest> interests;
    bool wanted = false;
    for (Peer& peer : peers) {
      peer.stream.write_some();
      peer.stream.discard();
      if (network->status(peer.stream.peer()).state != StreamState::open) continue;
      interests.push_back({peer.stream.peer(), true, peer.stream.wants_write()});
      wanted = wanted || interests.back().write;
    }
    if (!wanted || network->now() >= farewell_until) return;
    wait_for_streams(lock, interests, farewell_until);
  }
}

void Mesh::Impl::run_exchange(Lock& lock) {
  const double since = network->now();
  while (progress()) {
    const double now = network->now();
    say_alive(now);
    if (!busy()) return;
    watch_silence(since, now);
    if (!failure) wait_for_streams(lock, interests(), next_deadline(since));
  }
  farewell(lock);
  throw_failure();
}

Mesh::Mesh(std::unique_ptr<Network> network, MeshOptions options) : impl_(new Impl) {
  impl_->options = options;
  for (int rank = 0; rank < network->size(); ++rank) {
    if (rank != network->rank()) impl_->peers.push_back({PeerStream(*network, rank), 0});
  }
  if (options.silence_seconds > 0) impl_->alive_at = network->now() + options.silence_seconds / 4;
  impl_->network = std::move(network);
}

Mesh::~Mesh() {
  if (std::uncaught_exceptions() > impl_->exceptions) fail(std::string("ended by an error"));
  try {
    Impl::Lock lock(impl_->mutex);
    if (!impl_->failure) {
      for (Impl::Peer& peer : impl_->peers) peer.stream.say_goodbye();
      impl_->farewell_until = impl_->network->now() + impl_->options.farewell_seconds;
    }
    impl_->farewell(lock);
    impl_->network->close(impl_->network->now() + impl_->options.farewell_seconds);
  } catch (...) {  // the network goes, and with it the streams: the others see that
  }
}

int Mesh::rank() const { return impl_->network->rank(); }
int Mesh::size() const { return impl_->network->size(); }

void Mesh::exchange(std::span<const OutgoingMessage> out, std::span<const IncomingMessage> in) {
  Impl& impl = *impl_;
  Impl::Lock lock(impl.mutex);
  impl.throw_failure();
  const auto stream_of = [&](int rank) -> PeerStream& {
    if (rank < 0 || rank >= size() || rank == this->rank()) {
      throw Error("rank " + std::to_string(this->rank()) + " of " + std::to_string(size()) +
                  " cannot exchange messages with rank " + std::to_string(rank));
    }
    return impl.peers[static_cast<std::size_t>(rank < this->rank() ? rank : rank - 1)].stream;
  };
  for (const OutgoingMessage& message : out) stream_of(message.to);
  for (const IncomingMessage& message : in) stream_of(message.from);
  const Impl::Exchange exchange(impl);
  for (const IncomingMessage& message : in) stream_of(message.from).receive(message.bytes);
  for (const OutgoingMessage& message : out) stream_of(message.to).send(message.bytes);
  impl.run_exchange(lock);
}

void Mesh::fail(const std::string& reason) noexcept {
  try {
    fail(RankFailure{rank(), impl_->network->host(rank()), reason});
  } catch (...) {  // no memory for the text: the end of the process tells the others
  }
}

void Mesh::fail(const RankFailure& failure) noexcept {
  try {
    Impl::Lock lock(impl_->mutex);
    if (impl_->failure) return;
    impl_->record(failure);
    if (!impl_->exchanging) return impl_->farewell(lock);
    for (Impl::Peer& peer : impl_->peers) peer.stream.write_some();
    impl_->network->wake();  // the thread in exchange() tells the rest
  } catch (...) {
  }
}

std::optional<RankFailure> Mesh::failure() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->failure;
}

}  // namespace bantam
