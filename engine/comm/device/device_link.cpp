// Peer memory first: sums are added by one kernel that reads where they lie. NCCL wherever that cannot be.
#include "bantam/engine/comm/device/device_link.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/engine/comm/device/failure_word.h"
#include "bantam/engine/comm/device/nccl_link.h"
#include "bantam/engine/comm/device/peer_regions.h"
#include "bantam/engine/comm/span_shares.h"

namespace bantam {
namespace {

/// Ranks read and write each other's regions.
class PeerLink final : public DeviceLink {
 public:
  PeerLink(Communicator& ranks, const DeviceLinkOptions& options, std::unique_ptr<PeerRegions> regions)
      : tree_(options.layout.tree()),
        copy_bytes_(options.layout.copy_bytes),
        copies_(options.layout.copies_offset()),
        blocks_(options.blocks),
        failed_(FailureWord::of(ranks)),
        peers_(std::move(regions)) {
    regions_ = {.rank = ranks.rank(),
                .home = options.layout.place_offset(0),
                .bases = peers_->addresses(),
                .failed = failed_->address()};
  }

  std::string name() const override { return "peer memory"; }
  bool take_turns() const override { return peers_->take_turns(); }
  void exchange(const kernels::Exec& exec, std::span<const kernels::SumSpan> spans, bool beside_work) override {
    if (beside_work && spans.size() == 1 && can_copy(spans[0])) return copy_and_add(exec, spans[0]);
    BANTAM_KERNEL(exec, exchange_sums, tree_, regions_, spans, blocks_);
  }

 private:
  static constexpr std::uint64_t kLine = 256;

  bool can_copy(const kernels::SumSpan& span) const {
    const std::uint64_t bytes = kernels::bytes_of({&span, 1});
    return bytes > kernels::RankRegion::kSlotBytes &&
           bytes / static_cast<std::uint64_t>(tree_.ranks) + kLine <= copy_bytes_;
  }
  void copy_and_add(const kernels::Exec& exec, const kernels::SumSpan& span) const;
  std::byte* base(int rank) const { return regions_.bases[static_cast<std::size_t>(rank)]; }

  kernels::SumTree tree_;
  std::uint64_t copy_bytes_, copies_;
  int blocks_;
  std::shared_ptr<FailureWord> failed_;
  std::unique_ptr<PeerRegions> peers_;
  kernels::RankRegions regions_;
};

/// This rank's share of the others' sums by copy engines, added up here, the root to all by copy engines. Kernels that
/// need whole multiprocessors, as libraries' matrix products do, would wait for blocks of an exchange to end.
void PeerLink::copy_and_add(const kernels::Exec& exec, const kernels::SumSpan& span) const {
  const int rank = regions_.rank;
  const auto [begin, share] = share_of_span(kernels::bytes_of({&span, 1}), kLine, rank, tree_.ranks);
  std::byte* copy = base(rank) + copies_;
  std::array<const void*, kernels::SumTree::kMostSums> sums = {};
  BANTAM_KERNEL(exec, meet_ranks, tree_, regions_);
  for (std::size_t i = 0; i < static_cast<std::size_t>(tree_.sums); ++i) {
    const std::byte* const there = base(tree_.owners[i]) + tree_.places[i] + span.offset + begin;
    sums[i] = there;
    if (tree_.owners[i] == rank) continue;
    copy_bytes(copy, there, share, exec.stream);
    sums[i] = copy;
    copy += copy_bytes_;
  }
  std::byte* const root = base(rank) + regions_.home + span.offset + begin;
  BANTAM_KERNEL(exec, add_rank_sums, tree_, span.dtype, static_cast<std::int64_t>(share / size_of(span.dtype)),
                std::span(sums.data(), static_cast<std::size_t>(tree_.sums)), span.factor, root);
  for (int i = 1; i < tree_.ranks; ++i) {
    const int other = (rank + i) % tree_.ranks;  // ranks write to different ones at a time
    copy_bytes(base(other) + regions_.home + span.offset + begin, root, share, exec.stream);
  }
  BANTAM_KERNEL(exec, meet_ranks, tree_, regions_);
}

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

std::uint64_t RegionLayout::copies_offset() const { return kernels::RankRegion::header_bytes(sums()); }

/// Each rank has a sum of its own, which is not copied.
std::uint64_t RegionLayout::place_offset(int place) const {
  return copies_offset() + static_cast<std::uint64_t>(sums() - 1) * copy_bytes +
         static_cast<std::uint64_t>(place) * place_bytes;
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
