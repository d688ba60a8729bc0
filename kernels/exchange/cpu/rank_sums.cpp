// Sums finished among ranks on the CPU, for ranks that are threads: the protocol of the CUDA kernels with one block.
#include "bantam/kernels/exchange/rank_sums.h"

#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>
#include <type_traits>
#include <vector>

#include "bantam/base/error.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kBlock = 256;  // elements added at once, on the stack
constexpr int kMostDepth = 12;

/// At the beginning of a region; counts rise by one an exchange.
struct Words {
  std::uint32_t ready[SumTree::kMostRanks], done[SumTree::kMostRanks];
  std::uint32_t exchanges;
  std::uint32_t met[SumTree::kMostRanks];
  std::uint32_t meetings;
  std::uint32_t gave_up;  // 1: this rank has left an exchange before its end, and takes part in none any more
};
static_assert(sizeof(Words) <= RankRegion::kWordBytes);

Words& words_of(const RankRegions& regions, int rank) {
  return *reinterpret_cast<Words*>(regions.bases[static_cast<std::size_t>(rank)]);
}

/// Tells all other ranks, and waits for them; false where one has failed, and from then on. A rank that has given up
/// has weights that others do not expect: it raises no flag, so that nobody adds up what it has.
bool meet(const SumTree& tree, const RankRegions& regions, std::uint32_t (Words::*flags)[SumTree::kMostRanks],
          std::uint32_t count) {
  const auto own = static_cast<std::size_t>(regions.rank);
  if (words_of(regions, regions.rank).gave_up != 0) return false;
  for (int rank = 0; rank < tree.ranks; ++rank)
    if (rank != regions.rank)
      std::atomic_ref((words_of(regions, rank).*flags)[own]).store(count, std::memory_order_release);
  for (int rank = 0; rank < tree.ranks; ++rank) {
    const std::atomic_ref flag((words_of(regions, regions.rank).*flags)[static_cast<std::size_t>(rank)]);
    while (rank != regions.rank && static_cast<std::int32_t>(flag.load(std::memory_order_acquire) - count) < 0) {
      if (regions.failed != nullptr &&
          std::atomic_ref(const_cast<std::uint32_t&>(*regions.failed)).load(std::memory_order_relaxed) != 0) {
        words_of(regions, regions.rank).gave_up = 1;
        return false;
      }
      std::this_thread::yield();
    }
  }
  return true;
}

/// Sums and products in T, of float16 by way of float.
template <class T>
T plus(T left, T right) {
  return static_cast<T>(left + right);
}
template <class T>
T times(T factor, T value) {
  return static_cast<T>(factor * value);
}

template <class T>
T factor_of(double factor) {
  if constexpr (std::is_same_v<T, double>)
    return factor;
  else
    return T(static_cast<float>(factor));
}

/// out = factor · root over `count` elements from `begin` on.
template <class T>
void add_block(const SumTree& tree, const void* const* sums, T factor, T* out, std::int64_t begin, std::int64_t count) {
  std::array<std::array<T, kBlock>, kMostDepth> stack;
  std::size_t top = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(tree.sums); ++i) {
    std::memcpy(stack[top++].data(), static_cast<const T*>(sums[i]) + begin,
                static_cast<std::size_t>(count) * sizeof(T));
    for (int merge = 0; merge < tree.merges[i]; ++merge, --top)
      for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k)
        stack[top - 2][k] = plus(stack[top - 2][k], stack[top - 1][k]);
  }
  for (std::int64_t k = 0; k < count; ++k) out[k] = times(factor, stack[0][static_cast<std::size_t>(k)]);
}

template <class T>
void add_share(const SumTree& tree, const RankRegions& regions, const SumSpan& span) {
  const std::int64_t begin = span.elements * regions.rank / tree.ranks;
  const std::int64_t end = span.elements * (regions.rank + 1) / tree.ranks;
  std::array<const void*, SumTree::kMostSums> sums = {};
  for (std::size_t i = 0; i < static_cast<std::size_t>(tree.sums); ++i)
    sums[i] = regions.bases[tree.owners[i]] + tree.places[i] + span.offset;
  std::array<T, kBlock> root;
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t count = std::min(kBlock, end - at);
    add_block(tree, sums.data(), factor_of<T>(span.factor), root.data(), at, count);
    for (int rank = 0; rank < tree.ranks; ++rank)
      std::memcpy(reinterpret_cast<T*>(regions.bases[static_cast<std::size_t>(rank)] + regions.home + span.offset) + at,
                  root.data(), static_cast<std::size_t>(count) * sizeof(T));
  }
}

/// Makes an update be skipped: in this rank's share, which no other rank writes.
template <class T>
void spoil(const SumTree& tree, const RankRegions& regions, const SumSpan& span) {
  auto* const home =
      reinterpret_cast<T*>(regions.bases[static_cast<std::size_t>(regions.rank)] + regions.home + span.offset);
  const std::int64_t begin = span.elements * regions.rank / tree.ranks;
  if (begin < span.elements * (regions.rank + 1) / tree.ranks) home[begin] = T(std::numeric_limits<float>::quiet_NaN());
}

/// Calls `work` with a value of the span's type.
template <class Work>
void with_type(DType dtype, Work work) {
  switch (dtype) {
    case DType::float32:
      return work(float{});
    case DType::float16:
      return work(Half{});
    default:
      return work(double{});
  }
}

}  // namespace

void exchange_sums(const Exec&, const SumTree& tree, const RankRegions& regions, std::span<const SumSpan> spans, int) {
  check_exchange(tree, spans);
  if (bytes_of(spans) == 0) return;
  const std::uint32_t count = ++words_of(regions, regions.rank).exchanges;
  bool all = meet(tree, regions, &Words::ready, count);
  if (all) {
    for (const SumSpan& span : spans) with_type(span.dtype, [&]<class T>(T) { add_share<T>(tree, regions, span); });
    all = meet(tree, regions, &Words::done, count);
  }
  if (all) return;
  for (const SumSpan& span : spans) with_type(span.dtype, [&]<class T>(T) { spoil<T>(tree, regions, span); });
}

void meet_ranks(const Exec&, const SumTree& tree, const RankRegions& regions) {
  check_exchange(tree, {});
  (void)meet(tree, regions, &Words::met, ++words_of(regions, regions.rank).meetings);
}

void add_rank_sums(const Exec&, const SumTree& tree, DType dtype, std::int64_t elements,
                   std::span<const void* const> sums, double factor, void* out) {
  const SumSpan span{.dtype = dtype, .elements = elements};
  check_exchange(tree, {&span, 1});
  with_type(dtype, [&]<class T>(T) {
    for (std::int64_t at = 0; at < elements; at += kBlock)
      add_block(tree, sums.data(), factor_of<T>(factor), static_cast<T*>(out) + at, at,
                std::min(kBlock, elements - at));
  });
}

}  // namespace bantam::kernels::cpu
