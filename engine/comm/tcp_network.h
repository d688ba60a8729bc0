// TcpNetwork: byte streams between processes, on one host or several.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "bantam/engine/comm/network.h"
#include "bantam/engine/comm/sockets.h"

namespace bantam {

class TcpNetwork final : public Network {
 public:
  /// Connected, non-blocking sockets by rank, none to `rank` itself, and all ranks' hosts: what rendezvous() returns.
  TcpNetwork(int rank, std::vector<FileDescriptor> sockets, std::vector<std::string> hosts);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::string host(int rank) const override { return hosts_[static_cast<std::size_t>(rank)]; }
  std::size_t write(int to, std::span<const std::byte> bytes) override;
  std::size_t read(int from, std::span<std::byte> bytes) override;
  StreamStatus status(int peer) override;
  void wait(std::span<const StreamInterest> interests, double until) override;
  double now() override;
  void wake() noexcept override { wake_.signal(); }
  void close(double until) noexcept override;

 private:
  struct Peer {
    FileDescriptor socket;
    std::atomic<bool> ended = false;
    bool empty = false;      ///< nothing was there at the last read, nor the end
    int write_error = 0;     ///< what the last write failed with; what came before it may still be read
    std::string read_error;  ///< empty: the end was an orderly one
  };
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void end(Peer& peer, int error);
  bool drained(Peer& peer);

  int rank_;
  std::vector<Peer> peers_;
  std::vector<std::string> hosts_;
  WakeEvent wake_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace bantam
