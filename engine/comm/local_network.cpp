// Queues between threads. Each rank sleeps on a bell of its own, which whoever changes one of its streams rings.
#include "bantam/engine/comm/local_network.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace bantam {
namespace {

using Clock = std::chrono::steady_clock;

/// Bytes from one rank to another: a ring, made when the first come.
struct Pipe {
  std::mutex mutex;
  std::vector<std::byte> ring;
  std::size_t begin = 0, size = 0;
  bool writer_gone = false, reader_gone = false;
};

struct Bell {
  std::mutex mutex;
  std::condition_variable rung;
  std::uint64_t rings = 0;
  bool woken = false;
};

struct Hub {
  Hub(int count, std::size_t bytes)
      : ranks(count),
        buffer_bytes(std::max<std::size_t>(bytes, 1)),
        pipes(static_cast<std::size_t>(count) * static_cast<std::size_t>(count)),
        bells(static_cast<std::size_t>(count)) {}
  Pipe& pipe(int from, int to) {
    return pipes[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(to)];
  }
  Bell& bell(int rank) { return bells[static_cast<std::size_t>(rank)]; }
  void ring(int rank) {
    Bell& bell = this->bell(rank);
    const std::scoped_lock lock(bell.mutex);
    ++bell.rings;
    bell.rung.notify_all();
  }

  int ranks;
  std::size_t buffer_bytes;
  std::vector<Pipe> pipes;
  std::vector<Bell> bells;
  Clock::time_point start = Clock::now();
};

class LocalNetwork final : public Network {
 public:
  LocalNetwork(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~LocalNetwork() override { close(0); }

  int rank() const override { return rank_; }
  int size() const override { return hub_->ranks; }
  std::string host(int) const override { return ""; }
  std::size_t write(int to, std::span<const std::byte> bytes) override;
  std::size_t read(int from, std::span<std::byte> bytes) override;
  StreamStatus status(int peer) override;
  void wait(std::span<const StreamInterest> interests, double until) override;
  double now() override { return std::chrono::duration<double>(Clock::now() - hub_->start).count(); }
  void wake() noexcept override;
  void close(double until) noexcept override;

 private:
  bool ready(std::span<const StreamInterest> interests);

  std::shared_ptr<Hub> hub_;
  int rank_ = 0;
};

std::size_t LocalNetwork::write(int to, std::span<const std::byte> bytes) {
  Pipe& pipe = hub_->pipe(rank_, to);
  std::size_t count = 0;
  {
    const std::scoped_lock lock(pipe.mutex);
    if (pipe.reader_gone || pipe.writer_gone) return 0;
    pipe.ring.resize(hub_->buffer_bytes);
    count = std::min(bytes.size(), pipe.ring.size() - pipe.size);
    if (count == 0) return 0;
    const std::size_t end = (pipe.begin + pipe.size) % pipe.ring.size();
    const std::size_t first = std::min(count, pipe.ring.size() - end);
    std::memcpy(pipe.ring.data() + end, bytes.data(), first);
    std::memcpy(pipe.ring.data(), bytes.data() + first, count - first);
    pipe.size += count;
  }
  hub_->ring(to);
  return count;
}

std::size_t LocalNetwork::read(int from, std::span<std::byte> bytes) {
  Pipe& pipe = hub_->pipe(from, rank_);
  std::size_t count = 0;
  {
    const std::scoped_lock lock(pipe.mutex);
    count = std::min(bytes.size(), pipe.size);
    if (count == 0) return 0;
    const std::size_t first = std::min(count, pipe.ring.size() - pipe.begin);
    std::memcpy(bytes.data(), pipe.ring.data() + pipe.begin, first);
    std::memcpy(bytes.data() + first, pipe.ring.data(), count - first);
    pipe.begin = (pipe.begin + count) % pipe.ring.size();
    pipe.size -= count;
  }
  hub_->ring(from);
  return count;
}

StreamStatus LocalNetwork::status(int peer) {
  Pipe& pipe = hub_->pipe(peer, rank_);
  const std::scoped_lock lock(pipe.mutex);
  return {pipe.writer_gone && pipe.size == 0 ? StreamState::closed : StreamState::open, ""};
}

bool LocalNetwork::ready(std::span<const StreamInterest> interests) {
  return std::ranges::any_of(interests, [&](const StreamInterest& interest) {
    {
      Pipe& in = hub_->pipe(interest.peer, rank_);
      const std::scoped_lock lock(in.mutex);
      if (in.size == 0 ? in.writer_gone : interest.read) return true;
    }
    Pipe& out = hub_->pipe(rank_, interest.peer);
    const std::scoped_lock lock(out.mutex);
    return interest.write && (out.size < hub_->buffer_bytes) && !out.reader_gone;
  });
}

void LocalNetwork::wait(std::span<const StreamInterest> interests, double until) {
  Bell& bell = hub_->bell(rank_);
  std::unique_lock lock(bell.mutex);
  while (!bell.woken) {
    const std::uint64_t rings = bell.rings;
    lock.unlock();
    if (ready(interests)) return;
    const double left = until - now();
    if (left <= 0) return;
    lock.lock();
    const auto changed = [&] { return bell.rings != rings || bell.woken; };
    if (left > 1e6) {
      bell.rung.wait(lock, changed);
    } else {
      bell.rung.wait_for(lock, std::chrono::duration<double>(left), changed);
    }
  }
  bell.woken = false;
}

void LocalNetwork::wake() noexcept {
  Bell& bell = hub_->bell(rank_);
  const std::scoped_lock lock(bell.mutex);
  bell.woken = true;
  bell.rung.notify_all();
}

void LocalNetwork::close(double) noexcept {
  for (int peer = 0; peer < hub_->ranks; ++peer) {
    if (peer == rank_) continue;
    {
      Pipe& out = hub_->pipe(rank_, peer);
      const std::scoped_lock lock(out.mutex);
      out.writer_gone = true;
    }
    {
      Pipe& in = hub_->pipe(peer, rank_);
      const std::scoped_lock lock(in.mutex);
      in.reader_gone = true;
    }
    hub_->ring(peer);
  }
}

}  // namespace

std::vector<std::unique_ptr<Network>> local_networks(int ranks, std::size_t buffer_bytes) {
  const auto hub = std::make_shared<Hub>(ranks, buffer_bytes);
  std::vector<std::unique_ptr<Network>> networks;
  for (int rank = 0; rank < ranks; ++rank) networks.push_back(std::make_unique<LocalNetwork>(hub, rank));
  return networks;
}

}  // namespace bantam
