// DeviceLink: the replicas' tree finished among ranks on GPUs, in order of a stream, so that it can be recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/engine/comm/communicator.h"
#include "bantam/engine/comm/replica_shares.h"
#include "bantam/kernels/exchange/rank_sums.h"

namespace bantam {

/// A rank's region: kernels::RankRegion's header, room for copies of other ranks' sums, then places of equal bytes,
/// each with room for all that replicas come to. Place 0 is `home`, which receives roots.
struct RegionLayout {
  std::vector<ReplicaShare> shares;          ///< by rank: the replicas that it runs
  std::vector<std::vector<int>> sum_places;  ///< by rank: the place of each of its partial sums, in order of sums_of
  std::uint64_t place_bytes = 0;             ///< a multiple of 256
  /// Room for a copy of each other partial sum's share of a span, a multiple of 256; 0: none is ever copied.
  std::uint64_t copy_bytes = 0;

  int sums() const;
  /// Bytes before the copies, and before place `place`.
  std::uint64_t copies_offset() const;
  std::uint64_t place_offset(int place) const;
  std::uint64_t bytes(int places) const { return place_offset(places); }
  /// Throws ConfigError for more ranks or partial sums than exchanges on devices can have.
  kernels::SumTree tree() const;
};

/// How sums travel between the ranks' GPUs. Used by one thread.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;
  /// "peer memory", "NCCL 2.28.9".
  virtual std::string name() const = 0;
  /// As kernels::exchange_sums, in order of exec.stream. Every rank enqueues the same, in the same order on each stream
  /// of its own. `beside_work`: other kernels fill the device meanwhile, so bytes travel by copy engines where they
  /// can, which is slower and disturbs them less. Throws CudaError.
  virtual void exchange(const kernels::Exec& exec, std::span<const kernels::SumSpan> spans,
                        bool beside_work = false) = 0;
  /// Whether ranks share a GPU as processes, which take turns on it, of about 2 ms each: an exchange waits for such a
  /// turn, so few exchanges are then better than early ones.
  virtual bool take_turns() const { return false; }
  /// Bytes of device memory beside the regions, as far as the link itself allocated them.
  virtual std::uint64_t workspace_bytes() const { return 0; }
};

struct DeviceLinkOptions {
  RegionLayout layout;
  void* region = nullptr;  ///< this rank's, from an allocator of the device; outlives the link
  std::uint64_t region_bytes = 0;
  std::uint64_t largest_span = 0;  ///< bytes, of what will be exchanged at once
  /// Most thread blocks of an exchange in peer memory, the same on every rank: enough to fill a link, few enough to
  /// leave multiprocessors to the backward pass beside it.
  int blocks = 32;
  /// "": peer memory where all ranks reach it, else NCCL; "peer", "nccl": this one or an error.
  std::string transport;
};

/// Connects this rank's region with all others'. Every rank calls it. `exec`: the device, and a stream that is idle;
/// its first bytes are zeroed. Throws ConfigError or DeviceError, naming what each transport lacks, and
/// CommunicationError. `ranks` must outlive the link.
std::unique_ptr<DeviceLink> connect_devices(Communicator& ranks, const kernels::Exec& exec,
                                            const DeviceLinkOptions& options);

}  // namespace bantam
