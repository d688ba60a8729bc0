// SimulatedWorld: networks of ranks on threads, of which one runs at a time, in an order, on a clock and with faults
// that a seed decides.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bantam/engine/comm/network.h"

namespace bantam {

/// Thrown to end the thread of a rank that dies in a simulation. No Error, so that nothing reports it as a failure.
class SimulatedDeath {};

/// A fault that a rank meets just before call number `call` (from 1 on) of its network.
struct SimulatedFault {
  enum class Kind : std::uint8_t {
    death,              ///< its thread ends; the others see its streams end `seconds` later
    silent_death,       ///< its thread ends; its streams stay open
    lost_connection,    ///< to `peer`: what is under way is lost, both see it within `seconds`
    silent_connection,  ///< to `peer`: nothing arrives any more, and nobody is told
    stall               ///< it does nothing for `seconds`
  };
  Kind kind = Kind::death;
  int rank = 0, peer = 0;
  std::int64_t call = 1;
  double seconds = 0;
};

struct SimulatedWorldOptions {
  std::vector<SimulatedFault> faults = {};
  int most_faults = 0;  ///< besides, 0 to so many of any kind, decided by the seed
  /// These come within a rank's first so many calls of its network, early ones more often.
  std::int64_t fault_calls = 2000;
  /// Limits of all ranks' calls together and of the simulation's clock: a run that exceeds one counts as endless.
  std::int64_t most_calls = 20'000'000;
  double most_seconds = 30'000;
};

/// Each call of a network is a point where another rank may go on, and where faults happen. Streams have latencies of
/// their own, accept and return bytes in any portions, and the clock moves on where all ranks wait. The same seed and
/// the same ranks' work have the same schedule. Where all wait and nothing can happen, all end by SimulatedDeath.
class SimulatedWorld {
 public:
  SimulatedWorld(std::uint64_t seed, int ranks, SimulatedWorldOptions options);

  /// The network of a rank, for the thread between begin(rank) and end(rank). `world` outlives it.
  std::unique_ptr<Network> network(int rank);
  /// Waits for the rank's turn. The ranks go on when all of them have begun.
  void begin(int rank);
  /// The rank's thread has nothing more to do.
  void end(int rank);

  /// Whether the rank has died. The rest is for after the end of all ranks.
  bool dead(int rank);
  /// The faults that happened, as one line of text each; culprits() are the ranks concerned.
  const std::vector<std::string>& faults() const { return faults_; }
  const std::set<int>& culprits() const { return culprits_; }
  /// Nothing could happen any more, or the run did not end in time.
  bool stuck() const { return stuck_; }
  double seconds() const { return now_; }
  std::int64_t calls() const { return calls_; }
  std::uint64_t schedule_hash() const { return hash_; }

 private:
  friend class SimulatedNetwork;
  using Lock = std::unique_lock<std::mutex>;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Segment {
    double arrives = 0;
    std::vector<std::byte> bytes;
    std::size_t read = 0;
  };
  /// From one rank to another.
  struct Link {
    std::deque<Segment> segments;
    std::size_t bytes = 0, capacity = 0;
    double latency = 0, last_arrival = 0;
    double ends = kNever;    // the writer has closed it: when the reader sees that, after the last byte
    double breaks = kNever;  // when the reader sees that it is broken
    bool lost = false;       // what is written from now on never arrives
  };
  enum class Doing : std::uint8_t { starts, runs, waits, ended };
  struct Rank {
    std::condition_variable turn;
    Doing doing = Doing::starts;
    bool dead = false, woken = false;
    double not_before = 0;  // busy until then
    double until = 0;       // of a wait
    std::vector<StreamInterest> interests;
    std::int64_t calls = 0;
    double pause = 0;  // longest, between two calls
  };

  std::uint64_t random();
  std::uint64_t below(std::uint64_t end) { return random() % end; }
  bool one_in(std::uint64_t times) { return below(times) == 0; }
  double fraction();
  double between(double low, double high);  // logarithmically even
  void note(std::uint64_t value);
  SimulatedFault make_fault();

  Link& link(int from, int to);
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  bool step(Lock& lock, int rank);
  void happen(const SimulatedFault& fault);
  void leave(int rank, double delay);
  double wake_time(int rank);
  double event_time(int rank, const StreamInterest& interest);
  int choose();
  void pass_turn(Lock& lock, int rank);

  std::size_t write(int from, int to, std::span<const std::byte> bytes);
  std::size_t read(int from, int to, std::span<std::byte> bytes);
  StreamStatus status(int rank, int peer);
  void wait(int rank, std::span<const StreamInterest> interests, double until);

  SimulatedWorldOptions options_;
  std::mutex mutex_;
  std::uint64_t state_;
  std::vector<Rank> ranks_;
  std::vector<Link> links_;
  std::vector<SimulatedFault> planned_;
  std::vector<std::string> faults_;
  std::set<int> culprits_;
  double now_ = 0;
  int current_ = -1, begun_ = 0;
  bool stuck_ = false;
  std::int64_t calls_ = 0;
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace bantam
