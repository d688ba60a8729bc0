// PeerRegions: the memory that each rank of a host shares with the others, as this rank addresses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bantam/engine/comm/communicator.h"
#include "bantam/kernels/exchange/rank_sums.h"
#include "bantam/memory/device/device.h"

namespace bantam {

/// A region of each rank's device memory, mapped for this rank's device. The regions stay mapped as long as it lives;
/// whose region it is keeps it as long.
class PeerRegions {
 public:
  using Addresses = std::array<std::byte*, kernels::SumTree::kMostRanks>;

  /// Every rank calls it, with a region of `bytes` bytes from an allocator of `device`, in the order of all else that
  /// they exchange. Null on every rank where one cannot reach another's memory, and then `why` says so. Throws
  /// CommunicationError.
  static std::unique_ptr<PeerRegions> connect(Communicator& ranks, Device device, void* region, std::uint64_t bytes,
                                              std::string& why);
  ~PeerRegions();
  PeerRegions(const PeerRegions&) = delete;
  PeerRegions& operator=(const PeerRegions&) = delete;

  const Addresses& addresses() const;
  /// Whether two ranks are processes of their own on one device, whose kernels take turns on it.
  bool take_turns() const;

 private:
  struct Impl;
  explicit PeerRegions(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam
