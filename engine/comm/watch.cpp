// One thread, one loop: read what has come, tell what is new, beat, judge who is silent.
#include "bantam/engine/comm/watch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/text.h"
#include "bantam/engine/comm/handshake.h"

namespace bantam {
namespace {

constexpr double kFarewellSeconds = 2;
constexpr auto kTellTime = std::chrono::seconds(1);

}  // namespace

struct Watch::Impl {
  struct Peer {
    int rank = 0;
    FrameStream stream;
    double heard_at = 0;
  };

  Impl(std::vector<FrameStream> control, WatchOptions given);
  void run();
  void look();
  void read(Peer& peer, double now);
  void heed(Peer& peer, const handshake::Json& message);
  void judge_silence(double now);
  void beat(double now);
  void found(const RankFailure& failure);
  void tell();
  void part(double until);
  void wait(double seconds);
  double now() const { return seconds_since(start); }

  WatchOptions options;
  std::vector<Peer> peers;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double looked_at = 0, beat_at = 0;
  bool told = false;  ///< the others know of the failure
  WakeEvent wake;

  mutable std::mutex mutex;  ///< guards the members below, except `thread`
  std::condition_variable written;
  std::optional<RankFailure> failure;
  bool failure_written = false;
  bool leaves = false;

  std::thread thread;  ///< the last: it uses all others
};

Watch::Impl::Impl(std::vector<FrameStream> control, WatchOptions given) : options(std::move(given)) {
  for (std::size_t i = 0; i < control.size(); ++i) {
    if (!control[i].socket()) continue;
    peers.push_back({options.rank == 0 ? static_cast<int>(i) : 0, std::move(control[i]), 0});
  }
  options.silence_seconds = std::max(options.silence_seconds, 3 * options.beat_seconds);
  thread = std::thread([this] { run(); });
}

void Watch::Impl::wait(double seconds) {
  std::vector<FrameStream*> streams;
  for (Peer& peer : peers) streams.push_back(&peer.stream);
  wait_for(streams, wake.fd(), -1, seconds);
  wake.clear();
}

void Watch::Impl::run() {
  for (;;) {
    look();
    {
      const std::scoped_lock lock(mutex);
      if (leaves) break;
    }
    wait(std::max(beat_at - now(), 0.0));
  }
  part(now() + kFarewellSeconds);
}

void Watch::Impl::look() {
  const double time = now();
  // After a halt of this process others' heartbeats count from now on: it may have missed them, not they.
  const bool halted = time - looked_at > 2 * options.beat_seconds;
  looked_at = time;
  for (Peer& peer : peers) {
    if (halted) peer.heard_at = time;
    read(peer, time);
  }
  // Reported failures count before ended connections: a rank that ends because of another one reports that first.
  for (Peer& peer : peers) {
    if (!peer.stream.socket() || peer.stream.open()) continue;
    const bool died = peer.stream.closed_by_peer();
    const std::string how = peer.stream.ended();
    peer.stream.close();
    found({peer.rank, options.hosts[static_cast<std::size_t>(peer.rank)],
           died ? "died (connection closed)" : fmt::format("connection lost: {}", how)});
  }
  judge_silence(time);
  tell();
  beat(time);
}

void Watch::Impl::read(Peer& peer, double time) {
  if (!peer.stream.open()) return;
  peer.stream.receive();
  while (const auto frame = peer.stream.next()) {
    peer.heard_at = time;
    heed(peer, handshake::parse(*frame));
    if (!peer.stream.socket()) return;
  }
}

void Watch::Impl::heed(Peer& peer, const handshake::Json& message) {
  const auto failed = handshake::failure_in(message);
  // Who knows why it ends, or has said goodbye, has nothing to say any more; that this side closes tells it so.
  if (failed || message.contains("goodbye")) peer.stream.close();
  if (failed) found(*failed);
}

void Watch::Impl::judge_silence(double time) {
  for (const Peer& peer : peers) {
    if (!peer.stream.open() || time - peer.heard_at <= options.silence_seconds) continue;
    found({peer.rank, options.hosts[static_cast<std::size_t>(peer.rank)],
           fmt::format("not heard of for {}", format_duration(options.silence_seconds))});
  }
}

void Watch::Impl::found(const RankFailure& what) {
  {
    const std::scoped_lock lock(mutex);
    if (failure || leaves) return;
    failure = what;
  }
  tell();  // first, as the callback may take its time
  if (options.on_failure) options.on_failure(what);
}

/// The failure, once it is known, to all that are still there. Nothing else is said after it.
void Watch::Impl::tell() {
  std::optional<RankFailure> known;
  {
    const std::scoped_lock lock(mutex);
    known = failure;
  }
  if (known && !told) {
    told = true;
    for (Peer& peer : peers) {
      if (peer.stream.open()) peer.stream.send(handshake::to_text(handshake::message_of(*known)));
    }
  }
  if (!told) return;
  const bool all = std::ranges::all_of(peers, [](Peer& peer) { return !peer.stream.open() || peer.stream.flush(); });
  const std::scoped_lock lock(mutex);
  failure_written = all;
  if (all) written.notify_all();
}

void Watch::Impl::beat(double time) {
  if (time < beat_at) return;
  beat_at = time + options.beat_seconds;
  if (told) return;
  for (Peer& peer : peers) {
    // A process that does not read has enough to read.
    if (peer.stream.open() && peer.stream.flush()) peer.stream.send(handshake::to_text({{"beat", true}}));
  }
}

/// The end of the thread: goodbye, unless a failure was told, and then until all have closed their side.
void Watch::Impl::part(double until) {
  for (Peer& peer : peers) {
    if (!peer.stream.open()) continue;
    if (!told) peer.stream.send(handshake::to_text({{"goodbye", true}}));
    if (peer.stream.flush()) peer.stream.end_writing();
  }
  // Nobody waits for the one that has failed: it may never answer.
  const auto is_open = [&](const Peer& peer) {
    return peer.stream.open() && !(told && failure && failure->rank == peer.rank);
  };
  while (now() < until && std::ranges::any_of(peers, is_open)) {
    wait(until - now());
    for (Peer& peer : peers) {
      if (!peer.stream.open()) continue;
      peer.stream.receive();
      while (peer.stream.next()) {
      }
      if (peer.stream.flush()) peer.stream.end_writing();
    }
  }
}

Watch::Watch(std::vector<FrameStream> control, WatchOptions options)
    : impl_(std::make_unique<Impl>(std::move(control), std::move(options))) {}

Watch::~Watch() {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->leaves = true;
  }
  impl_->wake.signal();
  impl_->thread.join();
}

void Watch::fail(const RankFailure& failure) noexcept {
  try {
    std::unique_lock lock(impl_->mutex);
    if (impl_->leaves) return;
    if (!impl_->failure) impl_->failure = failure;
    impl_->wake.signal();
    if (std::this_thread::get_id() == impl_->thread.get_id()) return;
    impl_->written.wait_for(lock, kTellTime, [&] { return impl_->failure_written; });
  } catch (...) {  // no memory for the text: the end of the process tells the others
  }
}

std::optional<RankFailure> Watch::failure() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->failure;
}

}  // namespace bantam
