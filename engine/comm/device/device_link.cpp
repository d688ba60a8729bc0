// Peer memory first: sums are added by one kernel that reads where they lie. NCCL wherever that cannot be.
#include "bantam/engine/comm/device/device_link.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/engine/comm/device/failure_word.h"
#include "bantam/engine/comm/device/nccl_link.h"
#include "bantam/engine/comm/device/peer_regions.h"

namespace bantam {
namespace {

/// Ranks read and write each other's regions.
class PeerLink final : public DeviceLink {
 public:
  PeerLink(Communicator& ranks, const DeviceLinkOptions& options, std::unique_ptr<PeerRegions> regions)
      : tree_(options.layout.tree()),
        blocks_(options.blocks),
        failed_(FailureWord::of(ranks)),
        peers_(std::move(regions)) {
    regions_ = {.rank = ranks.rank(),
                .home = options.layout.place_offset(0),
                .bases = peers_->addresses(),
                .failed = failed_->address()};
  }

  std::string name() const override { return "peer memory"; }
  void exchange(const kernels::Exec& exec, std::span<const kernels::SumSpan> spans) override {
    BANTAM_KERNEL(exec, exchange_sums, tree_, regions_, spans, blocks_);
  }

 private:
  kernels::SumTree tree_;
  int blocks_;
  std::shared_ptr<FailureWord> failed_;
  std::unique_ptr<PeerRegions> peers_;
  kernels::RankRegions regions_;
};

/// Rank 0's wish, for all; ranks that were told other ones agree so.
std::string transport_of_all(Communicator& ranks, const std::string& mine) {
  std::string transport = broadcast_text(ranks, mine);
  if (!transport.empty() && transport != "peer" && transport != "nccl")
    throw ConfigError(fmt::format("BANTAM_TRANSPORT: expected peer or nccl, got '{}'", transport));
  return transport;
}

}  // namespace

int RegionLayout::sums() const {
  std::size_t count = 0;
  for (const std::vector<int>& of_rank : sum_places) count += of_rank.size();
  return static_cast<int>(count);
}

std::uint64_t RegionLayout::place_offset(int place) const {
  return kernels::RankRegion::header_bytes(sums()) + static_cast<std::uint64_t>(place) * place_bytes;
}

kernels::SumTree RegionLayout::tree() const {
  using kernels::SumTree;
  const std::size_t ranks = shares.size();
  if (ranks > SumTree::kMostRanks || sums() > SumTree::kMostSums)
    throw ConfigError(fmt::format(
        "{} ranks whose replicas make {} partial sums: GPUs exchange those of at most {} ranks, and at most "
        "{}; deal replicas in powers of two, or to fewer ranks",
        ranks, sums(), SumTree::kMostRanks, SumTree::kMostSums));
  SumTree tree{.ranks = static_cast<int>(ranks), .sums = sums()};
  std::vector<ReplicaSum> stack;  // what is being added up
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::vector<ReplicaSum> own = sums_of(shares[rank]);
    for (std::size_t i = 0; i < own.size(); ++i, ++at) {
      tree.owners[at] = static_cast<std::uint8_t>(rank);
      tree.places[at] = place_offset(sum_places[rank][i]);
      stack.push_back(own[i]);
      while (stack.size() > 1 && stack[stack.size() - 2].level == stack.back().level &&
             stack[stack.size() - 2].first % (2 << stack.back().level) == 0) {
        stack.pop_back();
        ++stack.back().level;
        ++tree.merges[at];
      }
    }
  }
  return tree;
}

std::unique_ptr<DeviceLink> connect_devices(Communicator& ranks, const kernels::Exec& exec,
                                            const DeviceLinkOptions& options) {
  const std::string transport = transport_of_all(ranks, options.transport);
  std::string why;
  std::unique_ptr<DeviceLink> link;
  zero_bytes(options.region, kernels::RankRegion::kWordBytes, exec.stream);
  synchronize(exec.stream);
  if (transport != "nccl") {
    std::unique_ptr<PeerRegions> regions =
        PeerRegions::connect(ranks, exec.device, options.region, options.region_bytes, why);
    if (regions) link = std::make_unique<PeerLink>(ranks, options, std::move(regions));
    if (!link && transport == "peer")
      throw DeviceError(fmt::format("BANTAM_TRANSPORT=peer: GPUs do not share their memory: {}", why));
  }
  if (!link) link = connect_nccl(ranks, exec, options, why);
  barrier(ranks);  // the words of all regions are zero
  return link;
}

}  // namespace bantam
