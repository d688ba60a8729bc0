// The simulated world: turns, the clock, streams and faults.
#include "bantam/engine/comm/simulated_network.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>

namespace bantam {

/// A rank's view of the world.
class SimulatedNetwork final : public Network {
 public:
  SimulatedNetwork(SimulatedWorld& world, int rank) : world_(world), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  std::string host(int rank) const override { return "host" + std::to_string(rank); }
  std::size_t write(int to, std::span<const std::byte> bytes) override { return world_.write(rank_, to, bytes); }
  std::size_t read(int from, std::span<std::byte> bytes) override { return world_.read(from, rank_, bytes); }
  StreamStatus status(int peer) override { return world_.status(rank_, peer); }
  void wait(std::span<const StreamInterest> interests, double until) override { world_.wait(rank_, interests, until); }
  double now() override {
    const std::scoped_lock lock(world_.mutex_);
    return world_.now_;
  }
  void wake() noexcept override {
    const std::scoped_lock lock(world_.mutex_);
    world_.at(rank_).woken = true;
  }
  void close(double) noexcept override {
    const std::scoped_lock lock(world_.mutex_);
    if (!world_.at(rank_).dead) world_.leave(rank_, 0);
  }

 private:
  SimulatedWorld& world_;
  int rank_;
};

SimulatedWorld::SimulatedWorld(std::uint64_t seed, int ranks, SimulatedWorldOptions options)
    : options_(options),
      state_(seed),
      ranks_(static_cast<std::size_t>(ranks)),
      links_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)) {
  for (Rank& rank : ranks_) rank.pause = between(1e-6, 1e-3) * (one_in(8) ? 100 : 1);
  for (Link& link : links_) {
    link.latency = between(1e-5, 1e-2);
    link.capacity = static_cast<std::size_t>(between(256, 1 << 20));
  }
  planned_ = options_.faults;
  if (options.most_faults > 0) {
    const std::uint64_t faults = below(static_cast<std::uint64_t>(options.most_faults) + 1);
    for (std::uint64_t i = 0; i < faults; ++i) planned_.push_back(make_fault());
  }
}

std::unique_ptr<Network> SimulatedWorld::network(int rank) { return std::make_unique<SimulatedNetwork>(*this, rank); }

// Chance (splitmix64: Steele, Lea and Flood 2014).

std::uint64_t SimulatedWorld::random() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double SimulatedWorld::fraction() { return static_cast<double>(random() >> 11) * 0x1p-53; }
double SimulatedWorld::between(double low, double high) { return low * std::pow(high / low, fraction()); }

void SimulatedWorld::note(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3u; }

SimulatedFault SimulatedWorld::make_fault() {
  SimulatedFault fault;
  fault.kind = static_cast<SimulatedFault::Kind>(below(5));
  fault.rank = static_cast<int>(below(ranks_.size()));
  const auto calls = static_cast<std::uint64_t>(options_.fault_calls);
  fault.call = static_cast<std::int64_t>(
      one_in(2) ? 1 + below(calls) : static_cast<std::uint64_t>(between(1, static_cast<double>(calls))));
  const bool connection =
      fault.kind == SimulatedFault::Kind::lost_connection || fault.kind == SimulatedFault::Kind::silent_connection;
  if (connection && size() == 1) fault.kind = SimulatedFault::Kind::stall;
  if (size() > 1)
    fault.peer =
        static_cast<int>((static_cast<std::uint64_t>(fault.rank) + 1 + below(ranks_.size() - 1)) % ranks_.size());
  fault.seconds = fault.kind == SimulatedFault::Kind::stall ? between(1, 100) : between(1e-3, 5);
  return fault;
}

SimulatedWorld::Link& SimulatedWorld::link(int from, int to) {
  return links_[static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to)];
}

// Turns.

void SimulatedWorld::begin(int rank) {
  Lock lock(mutex_);
  if (++begun_ == size()) {
    current_ = choose();
    at(current_).turn.notify_one();
  }
  at(rank).turn.wait(lock, [&] { return current_ == rank; });
  at(rank).doing = Doing::runs;
}

void SimulatedWorld::end(int rank) {
  const std::scoped_lock lock(mutex_);
  at(rank).doing = Doing::ended;
  current_ = choose();
  if (current_ >= 0) at(current_).turn.notify_one();
}

bool SimulatedWorld::dead(int rank) {
  const std::scoped_lock lock(mutex_);
  return at(rank).dead;
}

/// When something happens to a stream that a rank waits for: now, later, or not unless another rank does something.
double SimulatedWorld::event_time(int rank, const StreamInterest& interest) {
  const Link& in = link(interest.peer, rank);
  double time = in.breaks;
  if (!in.segments.empty()) {
    if (interest.read) time = std::min(time, in.segments.front().arrives);
  } else {
    time = std::min(time, in.ends);
  }
  const Link& out = link(rank, interest.peer);
  if (interest.write && out.bytes < out.capacity) time = std::min(time, now_);
  return time;
}

/// The time from which on a rank can go on.
double SimulatedWorld::wake_time(int number) {
  Rank& rank = at(number);
  if (rank.doing == Doing::ended) return kNever;
  if (rank.doing != Doing::waits) return rank.not_before;
  double time = rank.woken ? now_ : rank.until;
  for (const StreamInterest& interest : rank.interests) time = std::min(time, event_time(number, interest));
  return std::max(time, rank.not_before);
}

/// The rank whose turn it is next; -1: all have ended. The clock moves on where all wait.
int SimulatedWorld::choose() {
  double first = kNever;
  std::vector<double> times(ranks_.size());
  for (int rank = 0; rank < size(); ++rank) {
    times[static_cast<std::size_t>(rank)] = wake_time(rank);
    first = std::min(first, times[static_cast<std::size_t>(rank)]);
  }
  std::vector<int> able;
  for (int rank = 0; rank < size(); ++rank) {
    if (at(rank).doing == Doing::ended) continue;
    if (first == kNever || stuck_ || times[static_cast<std::size_t>(rank)] <= std::max(now_, first))
      able.push_back(rank);
  }
  if (able.empty()) return -1;
  if (first == kNever) stuck_ = true;
  if (!stuck_) now_ = std::max(now_, first);
  const int rank = able[below(able.size())];
  note(static_cast<std::uint64_t>(rank));
  note(std::bit_cast<std::uint64_t>(now_));
  return rank;
}

void SimulatedWorld::pass_turn(Lock& lock, int rank) {
  current_ = choose();
  if (current_ != rank) {
    at(current_).turn.notify_one();
    at(rank).turn.wait(lock, [&] { return current_ == rank; });
  }
  at(rank).doing = Doing::runs;
}

/// Before each call of a living rank's network: time passes, faults happen, others have their turn. false: the rank is
/// dead, and its thread ends already.
bool SimulatedWorld::step(Lock& lock, int number) {
  Rank& rank = at(number);
  if (++calls_ > options_.most_calls || now_ > options_.most_seconds) stuck_ = true;
  ++rank.calls;
  for (const SimulatedFault& fault : planned_) {
    if (fault.rank == number && fault.call == rank.calls && !rank.dead) happen(fault);
  }
  if (!rank.dead && !stuck_ && (one_in(4) || rank.not_before > now_)) {
    rank.not_before = std::max(rank.not_before, now_ + rank.pause * fraction());
    pass_turn(lock, number);
  }
  if (!rank.dead && !stuck_) return true;
  if (std::uncaught_exceptions() == 0) throw SimulatedDeath();
  return false;
}

// Faults.

void SimulatedWorld::happen(const SimulatedFault& fault) {
  static constexpr const char* kNames[] = {"dies", "dies silently", "loses its connection", "has a silent connection",
                                           "stalls"};
  const bool connection =
      fault.kind == SimulatedFault::Kind::lost_connection || fault.kind == SimulatedFault::Kind::silent_connection;
  faults_.push_back("at " + std::to_string(now_) + " s rank " + std::to_string(fault.rank) + " " +
                    kNames[static_cast<std::size_t>(fault.kind)] +
                    (connection                                  ? " to rank " + std::to_string(fault.peer)
                     : fault.kind == SimulatedFault::Kind::stall ? " for " + std::to_string(fault.seconds) + " s"
                                                                 : ""));
  culprits_.insert(fault.rank);
  if (connection) culprits_.insert(fault.peer);
  note(static_cast<std::uint64_t>(fault.kind) + 1000);
  if (fault.kind == SimulatedFault::Kind::stall) {
    at(fault.rank).not_before = now_ + fault.seconds;
  } else if (connection) {
    for (Link* link : {&link(fault.rank, fault.peer), &link(fault.peer, fault.rank)}) {
      link->lost = true;
      for (Segment& segment : link->segments) {
        if (segment.arrives > now_) segment.arrives = kNever;
      }
      if (fault.kind == SimulatedFault::Kind::lost_connection) link->breaks = now_ + fault.seconds * fraction();
    }
  } else {
    at(fault.rank).dead = true;
    if (fault.kind == SimulatedFault::Kind::death) leave(fault.rank, fault.seconds);
  }
}

/// The rank's streams end for the others, after what they still receive.
void SimulatedWorld::leave(int rank, double delay) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank) continue;
    Link& out = link(rank, peer);
    if (!out.lost) out.ends = std::max(out.last_arrival, now_ + delay);
    link(peer, rank).lost = true;
  }
}

// Streams.

std::size_t SimulatedWorld::write(int from, int to, std::span<const std::byte> bytes) {
  Lock lock(mutex_);
  if (!step(lock, from)) return bytes.size();
  Link& out = link(from, to);
  std::size_t count = std::min(bytes.size(), out.capacity - out.bytes);
  if (count > 1 && one_in(2)) count = 1 + below(count);
  note(count);
  if (count == 0) return 0;
  const double jitter = one_in(200) ? fraction() : out.latency * (0.5 + fraction());
  out.last_arrival = std::max(out.last_arrival, now_ + jitter);
  out.segments.push_back(
      {out.lost ? kNever : out.last_arrival, {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)}});
  out.bytes += count;
  return count;
}

std::size_t SimulatedWorld::read(int from, int to, std::span<std::byte> bytes) {
  Lock lock(mutex_);
  if (!step(lock, to)) return 0;
  Link& in = link(from, to);
  std::size_t most = bytes.size(), count = 0;
  if (most > 1 && one_in(2)) most = 1 + below(most);
  while (count < most && !in.segments.empty() && in.segments.front().arrives <= now_) {
    Segment& segment = in.segments.front();
    const std::size_t some = std::min(most - count, segment.bytes.size() - segment.read);
    std::memcpy(bytes.data() + count, segment.bytes.data() + segment.read, some);
    segment.read += some;
    count += some;
    if (segment.read == segment.bytes.size()) in.segments.pop_front();
  }
  in.bytes -= count;
  note(count);
  return count;
}

StreamStatus SimulatedWorld::status(int rank, int peer) {
  const std::scoped_lock lock(mutex_);
  const Link& in = link(peer, rank);
  const bool more = !in.segments.empty() && in.segments.front().arrives < kNever;
  if (in.breaks <= now_) return {StreamState::broken, "connection reset"};
  return {!more && in.ends <= now_ ? StreamState::closed : StreamState::open, ""};
}

void SimulatedWorld::wait(int number, std::span<const StreamInterest> interests, double until) {
  Lock lock(mutex_);
  if (!step(lock, number)) return;
  Rank& rank = at(number);
  rank.doing = Doing::waits;
  rank.interests.assign(interests.begin(), interests.end());
  rank.until = one_in(16) ? std::min(until, now_ + rank.pause * fraction()) : until;
  pass_turn(lock, number);
  rank.woken = false;
  rank.interests.clear();
}

}  // namespace bantam
