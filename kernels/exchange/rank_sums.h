// Sums of the replicas' tree, finished among ranks: in memory that every rank reads and writes, or after the partial
// sums were sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// A binary tree over the partial sums of all ranks, in order of their replicas; small enough to be an argument of a
/// kernel. After sum i was pushed on a stack, `merges[i]` times the two values on its top are replaced by their sum,
/// the lower one being the left operand: what remains is the root.
struct SumTree {
  static constexpr int kMostSums = 32, kMostRanks = 16;

  int ranks = 1;
  int sums = 0;
  std::array<std::uint8_t, kMostSums> owners = {};  ///< the rank that has sum i
  std::array<std::uint8_t, kMostSums> merges = {};
  std::array<std::uint64_t, kMostSums> places = {};  ///< where sum i lies: bytes from its rank's region's begin
};

/// A part of the numbers that every place has, the same on every rank.
struct SumSpan {
  DType dtype = DType::float32;  ///< float32, float64 or float16, to which each sum is then rounded
  std::uint64_t offset = 0;      ///< bytes from the beginning of a place, a multiple of 16
  std::int64_t elements = 0;     ///< memory for whole multiples of 16 bytes is there
  double factor = 1.0;           ///< multiplies the root: a power of two
};

/// The first bytes of a region: what ranks tell one another, and what small exchanges send.
struct RankRegion {
  static constexpr int kMostBlocks = 128;
  static constexpr std::uint64_t kWordBytes = std::uint64_t{32}
                                              << 10;  ///< flags and counts, zero before the first exchange
  static constexpr std::uint64_t kSlotBytes = std::uint64_t{256} << 10;  ///< one partial sum of a small exchange

  /// Bytes before the first place: the words, and two slots for each partial sum of all ranks.
  static constexpr std::uint64_t header_bytes(int sums) {
    return kWordBytes + 2 * static_cast<std::uint64_t>(sums) * kSlotBytes;
  }
};

/// The memory of all ranks as this one addresses it. Each region begins with RankRegion's header; the place that
/// receives roots lies `home` bytes from its beginning, on every rank.
struct RankRegions {
  int rank = 0;
  std::uint64_t home = 0;
  std::array<std::byte*, SumTree::kMostRanks> bases = {};
  /// Not 0 once a rank has failed: kernels then wait for no other rank any more, and what they write is not finite.
  /// Read by the device; null: none can fail.
  const std::uint32_t* failed = nullptr;
};

/// Bytes of the spans, each rounded up to 16.
std::uint64_t bytes_of(std::span<const SumSpan> spans);

/// On every rank: home's spans = factor · root of the tree over all ranks' partial sums, which lie in their places when
/// the call's work begins. All ranks call it with the same tree and spans (at most 4), in the same order; each waits
/// for the others while it runs. Small calls (bytes_of at most kSlotBytes) send all partial sums to all; others divide
/// the spans, and each rank adds up a share and writes it to all. Places but home are unchanged. Throws Error for more
/// sums, ranks or spans. Asynchronous on CUDA, in at most `blocks` thread blocks (1 … kMostBlocks, the same on every
/// rank); deterministic.
using ExchangeSums = void(const Exec&, const SumTree&, const RankRegions&, std::span<const SumSpan>, int blocks);

/// out = factor · root of the tree over arrays of `elements` numbers, sums[i] being partial sum i; all aligned to 16
/// bytes, with memory for whole multiples of 16. `out` may be one of them. Asynchronous on CUDA; deterministic.
using AddRankSums = void(const Exec&, const SumTree&, DType, std::int64_t elements, std::span<const void* const> sums,
                         double factor, void* out);

/// Returns, in order of the stream, when every rank has come to the same call: all that they did before can be read.
/// One small thread block on CUDA, so that it waits beside kernels that fill the device. Where a rank has failed it
/// does not wait.
using MeetRanks = void(const Exec&, const SumTree&, const RankRegions&);

/// Throws Error where there are too many sums, ranks or spans, or a span's type is none that can be added.
void check_exchange(const SumTree& tree, std::span<const SumSpan> spans);

BANTAM_DECLARE_KERNEL(ExchangeSums, exchange_sums);
BANTAM_DECLARE_KERNEL(AddRankSums, add_rank_sums);
BANTAM_DECLARE_KERNEL(MeetRanks, meet_ranks);

}  // namespace bantam::kernels
