// Sums finished among ranks on CUDA, in memory of all of them that each can read and write. Block b of a rank waits for
// block b of every other: blocks need not run at once, but begin in the same order everywhere.
#include <algorithm>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/exchange/rank_sums.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 512, kMostSpans = 4, kMostDepth = 12;

/// Flags and counts in a region's first bytes. Counts rise by one an exchange, so that nothing has to be reset, and a
/// recorded exchange can be repeated; a flag is up when it is not less than the count of the exchange.
struct Words {
  unsigned ready[RankRegion::kMostBlocks][SumTree::kMostRanks];  // by others: their partial sums are there
  unsigned done[RankRegion::kMostBlocks][SumTree::kMostRanks];   // their share's root was written here
  unsigned sent[RankRegion::kMostBlocks][SumTree::kMostRanks];   // their partial sums were written into the slots
  unsigned divided[RankRegion::kMostBlocks];                     // exchanges so far, by this rank's own blocks
  unsigned small[RankRegion::kMostBlocks];
  unsigned met[SumTree::kMostRanks];  // by others: they came to so many meetings
  unsigned meetings;
  unsigned gave_up;  // 1: this rank has left an exchange before its end, and takes part in none any more
};
static_assert(sizeof(Words) <= RankRegion::kWordBytes);

struct Call {
  SumTree tree;
  RankRegions regions;
  SumSpan spans[kMostSpans];
  int count = 0;
};

__device__ Words& words_of(const Call& call, int rank) { return *reinterpret_cast<Words*>(call.regions.bases[rank]); }

/// All that the block has written before its last barrier can be read by who sees the flag.
__device__ void raise(unsigned* flag, unsigned count) {
  __threadfence_system();
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(count) : "memory");
}

/// False where a rank has failed.
__device__ bool wait_for(const unsigned* flag, unsigned count, const std::uint32_t* failed) {
  for (unsigned asked = 1;; ++asked) {
    unsigned now = 0;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(now) : "l"(flag) : "memory");
    if (static_cast<int>(now - count) >= 0) return true;
    if (asked % 128 == 0 && failed != nullptr && *reinterpret_cast<const volatile std::uint32_t*>(failed) != 0)
      return false;
  }
}

/// Whether this rank still takes part. A rank that has given up has weights that others do not expect: it raises no
/// flag, so that nobody adds up what it has.
__device__ bool takes_part(const Call& call) {
  return *const_cast<const volatile unsigned*>(&words_of(call, call.regions.rank).gave_up) == 0;
}

/// Tells all other ranks, and waits for them; whether they all came is the same for the whole block.
__device__ bool meet(const Call& call, unsigned (Words::*flags)[RankRegion::kMostBlocks][SumTree::kMostRanks],
                     unsigned count) {
  const auto other = static_cast<int>(threadIdx.x);
  bool came = takes_part(call);
  if (__syncthreads_and(came) == 0) return false;
  if (other < call.tree.ranks && other != call.regions.rank) {
    raise(&(words_of(call, other).*flags)[blockIdx.x][call.regions.rank], count);
    came = wait_for(&(words_of(call, call.regions.rank).*flags)[blockIdx.x][other], count, call.regions.failed);
  }
  return __syncthreads_and(came) != 0;
}

template <class T>
using Lanes = Pack<T, kVectorLanes<T>>;

/// Past the first-level cache, which knows nothing of other devices' writes.
template <class T>
__device__ Lanes<T> load(const std::byte* at) {
  const uint4 bits = __ldcg(reinterpret_cast<const uint4*>(at));
  Lanes<T> pack;
  memcpy(&pack, &bits, sizeof(bits));
  return pack;
}

template <class T>
__device__ Lanes<T> add(const Lanes<T>& left, const Lanes<T>& right) {
  Lanes<T> sum;
#pragma unroll
  for (int k = 0; k < kVectorLanes<T>; ++k) sum.v[k] = left.v[k] + right.v[k];
  return sum;
}
template <>
__device__ Lanes<__half> add<__half>(const Lanes<__half>& left, const Lanes<__half>& right) {
  Lanes<__half> sum;
#pragma unroll
  for (int k = 0; k < kVectorLanes<__half>; ++k) sum.v[k] = __hadd_rn(left.v[k], right.v[k]);
  return sum;
}

template <class T>
__device__ T times(T factor, T value) {
  return factor * value;
}
template <>
__device__ __half times<__half>(__half factor, __half value) {
  return __hmul_rn(factor, value);
}

/// Casts the factor to T, the type that sums are added in.
template <class T>
__host__ __device__ T factor_of(double factor) {
  return static_cast<T>(factor);
}
template <>
__host__ __device__ __half factor_of<__half>(double factor) {
  return __float2half_rn(static_cast<float>(factor));
}

/// The root over values x_i = load_sum(i). kSums, a power of two: so many sums in a full tree; 0: any tree.
template <class T, int kSums, class LoadSum>
__device__ Lanes<T> root_of(const SumTree& tree, T factor, LoadSum load_sum) {
  Lanes<T> root;
  if constexpr (kSums > 0) {
    Lanes<T> x[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) x[i] = load_sum(i);
#pragma unroll
    for (int width = 1; width < kSums; width *= 2)
#pragma unroll
      for (int i = 0; i < kSums; i += 2 * width) x[i] = add<T>(x[i], x[i + width]);
    root = x[0];
  } else {
    Lanes<T> stack[kMostDepth];
    int top = 0;
    for (int i = 0; i < tree.sums; ++i) {
      stack[top++] = load_sum(i);
      for (int merge = 0; merge < tree.merges[i]; ++merge, --top)
        stack[top - 2] = add<T>(stack[top - 2], stack[top - 1]);
    }
    root = stack[0];
  }
#pragma unroll
  for (int k = 0; k < kVectorLanes<T>; ++k) root.v[k] = times<T>(factor, root.v[k]);
  return root;
}

template <class T>
__device__ void store(std::byte* at, const Lanes<T>& pack) {
  uint4 bits;
  memcpy(&bits, &pack, sizeof(bits));
  *reinterpret_cast<uint4*>(at) = bits;
}

/// Packs of 16 bytes.
__host__ __device__ std::int64_t packs_of(const SumSpan& span) {
  const std::int64_t bytes = span.dtype == DType::float64 ? 8 : span.dtype == DType::float32 ? 4 : 2;
  return (span.elements * bytes + 15) / 16;
}

/// Gives up, and writes into a pack of home, which nobody but this block writes, what makes an update be skipped.
__device__ void give_up(const Call& call, const SumSpan& span, std::int64_t pack) {
  words_of(call, call.regions.rank).gave_up = 1;
  std::byte* const home = call.regions.bases[call.regions.rank] + call.regions.home + span.offset;
  *reinterpret_cast<uint4*>(home + pack * 16) = make_uint4(~0u, ~0u, ~0u, ~0u);  // not a number, in any type
}

/// This rank's share of a span: its root, written to all.
template <class T, int kSums>
__device__ void add_share(const Call& call, const SumSpan& span) {
  constexpr int kAtOnce = kSums == 2 ? 4 : kSums == 4 ? 2 : 1;
  const SumTree& tree = call.tree;
  const int rank = call.regions.rank;
  const std::int64_t packs = packs_of(span), begin = packs * rank / tree.ranks, end = packs * (rank + 1) / tree.ranks;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t first = begin + static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; first < end;
       first += stride * kAtOnce) {
    Lanes<T> root[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const std::int64_t at = first + u * stride;
      if (at < end)
        root[u] = root_of<T, kSums>(tree, factor_of<T>(span.factor), [&](int i) {
          return load<T>(call.regions.bases[tree.owners[i]] + tree.places[i] + span.offset + at * 16);
        });
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const std::int64_t at = first + u * stride;
      if (at >= end) continue;
      for (int i = 0; i < tree.ranks; ++i) {
        const int other = (rank + i) % tree.ranks;  // ranks write to different ones at a time
        store<T>(call.regions.bases[other] + call.regions.home + span.offset + at * 16, root[u]);
      }
    }
  }
}

template <int kSums>
__global__ void __launch_bounds__(kThreads) divided_exchange_kernel(const __grid_constant__ Call call) {
  unsigned* const exchanges = &words_of(call, call.regions.rank).divided[blockIdx.x];
  const unsigned count = *exchanges + 1;
  bool all = meet(call, &Words::ready, count);
  if (all) {
    for (int i = 0; i < call.count; ++i) {
      if (call.spans[i].dtype == DType::float32)
        add_share<float, kSums>(call, call.spans[i]);
      else if (call.spans[i].dtype == DType::float16)
        add_share<__half, kSums>(call, call.spans[i]);
      else
        add_share<double, kSums>(call, call.spans[i]);
    }
    all = meet(call, &Words::done, count);
  }
  if (threadIdx.x != 0) return;
  *exchanges = count;
  if (all) return;
  for (int i = 0; i < call.count; ++i) {
    const std::int64_t packs = packs_of(call.spans[i]), begin = packs * call.regions.rank / call.tree.ranks;
    const std::int64_t end = packs * (call.regions.rank + 1) / call.tree.ranks;
    const std::int64_t own = begin + static_cast<std::int64_t>(blockIdx.x) * kThreads;
    if (own < end) give_up(call, call.spans[i], own);
  }
}

/// Pack `at` of all spans, one after another: calls visit(span, pack within it).
template <class Visit>
__device__ void find_pack(const Call& call, std::int64_t at, Visit visit) {
  for (int i = 0; i < call.count; ++i) {
    const std::int64_t packs = packs_of(call.spans[i]);
    if (at < packs) return visit(call.spans[i], at);
    at -= packs;
  }
}

/// Two slots for each partial sum, used in turn: a rank that has heard of the others' exchange n + 1 knows that they
/// have read what was sent in exchange n.
__device__ std::byte* slot_of(const Call& call, int rank, int sum, unsigned count) {
  return call.regions.bases[rank] + RankRegion::kWordBytes +
         (static_cast<std::uint64_t>(count % 2) * static_cast<std::uint64_t>(call.tree.sums) +
          static_cast<std::uint64_t>(sum)) *
             RankRegion::kSlotBytes;
}

template <class T, int kSums>
__device__ void add_sent(const Call& call, const SumSpan& span, std::int64_t pack, std::int64_t at, unsigned count) {
  const int rank = call.regions.rank;
  std::byte* const own = call.regions.bases[rank];
  const Lanes<T> root = root_of<T, kSums>(call.tree, factor_of<T>(span.factor), [&](int i) {
    return call.tree.owners[i] == rank ? load<T>(own + call.tree.places[i] + span.offset + pack * 16)
                                       : load<T>(slot_of(call, rank, i, count) + at * 16);
  });
  store<T>(own + call.regions.home + span.offset + pack * 16, root);
}

template <int kSums>
__global__ void __launch_bounds__(kThreads)
    small_exchange_kernel(const __grid_constant__ Call call, std::int64_t packs) {
  const int rank = call.regions.rank;
  unsigned* const exchanges = &words_of(call, rank).small[blockIdx.x];
  const unsigned count = *exchanges + 1;
  for (std::int64_t at = grid_thread(); at < packs; at += grid_threads())
    find_pack(call, at, [&](const SumSpan& span, std::int64_t pack) {
      for (int i = 0; i < call.tree.sums; ++i) {
        if (call.tree.owners[i] != rank) continue;
        const auto value = load<float>(call.regions.bases[rank] + call.tree.places[i] + span.offset + pack * 16);
        for (int n = 1; n < call.tree.ranks; ++n)
          store<float>(slot_of(call, (rank + n) % call.tree.ranks, i, count) + at * 16, value);
      }
    });
  const bool all = meet(call, &Words::sent, count);
  if (all) {
    for (std::int64_t at = grid_thread(); at < packs; at += grid_threads())
      find_pack(call, at, [&](const SumSpan& span, std::int64_t pack) {
        if (span.dtype == DType::float32)
          add_sent<float, kSums>(call, span, pack, at, count);
        else if (span.dtype == DType::float16)
          add_sent<__half, kSums>(call, span, pack, at, count);
        else
          add_sent<double, kSums>(call, span, pack, at, count);
      });
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  *exchanges = count;
  if (!all)
    find_pack(call, static_cast<std::int64_t>(blockIdx.x) * kThreads,
              [&](const SumSpan& span, std::int64_t pack) { give_up(call, span, pack); });
}

__global__ void meet_ranks_kernel(const __grid_constant__ Call call) {
  Words& own = words_of(call, call.regions.rank);
  const unsigned count = own.meetings + 1;
  const auto other = static_cast<int>(threadIdx.x);
  const bool takes = takes_part(call);
  __syncwarp();
  if (takes && other < call.tree.ranks && other != call.regions.rank) {
    raise(&words_of(call, other).met[call.regions.rank], count);
    if (!wait_for(&own.met[other], count, call.regions.failed)) own.gave_up = 1;
  }
  __syncwarp();
  if (other == 0) own.meetings = count;
}

/// kSums of root_of for this tree.
int full_tree(const SumTree& tree) {
  if (tree.sums != 2 && tree.sums != 4 && tree.sums != 8) return 0;
  for (int i = 0; i < tree.sums; ++i) {
    int merges = 0;
    while (((i + 1) >> merges) % 2 == 0) ++merges;  // trailing zeros of i + 1
    if (tree.merges[static_cast<std::size_t>(i)] != merges) return 0;
  }
  return tree.sums;
}

/// Calls `launch` with an integral_constant of kSums.
template <class Launch>
void with_tree(const SumTree& tree, Launch launch) {
  switch (full_tree(tree)) {
    case 2:
      return launch(std::integral_constant<int, 2>());
    case 4:
      return launch(std::integral_constant<int, 4>());
    case 8:
      return launch(std::integral_constant<int, 8>());
    default:
      return launch(std::integral_constant<int, 0>());
  }
}

struct Arrays {
  const std::byte* sums[SumTree::kMostSums] = {};
};

template <class T, int kSums>
__global__ void __launch_bounds__(kThreads)
    add_rank_sums_kernel(const __grid_constant__ SumTree tree, const __grid_constant__ Arrays arrays,
                         std::int64_t packs, T factor, std::byte* out) {
  for (std::int64_t at = grid_thread(); at < packs; at += grid_threads())
    store<T>(out + at * 16, root_of<T, kSums>(tree, factor, [&](int i) { return load<T>(arrays.sums[i] + at * 16); }));
}

}  // namespace

void exchange_sums(const Exec& exec, const SumTree& tree, const RankRegions& regions, std::span<const SumSpan> spans,
                   int blocks) {
  check_exchange(tree, spans);
  Call call{.tree = tree, .regions = regions};
  std::int64_t packs = 0;
  for (const SumSpan& span : spans) {
    call.spans[call.count++] = span;
    packs += packs_of(span);
  }
  if (packs == 0) return;
  const bool small = static_cast<std::uint64_t>(packs) * 16 <= RankRegion::kSlotBytes;
  const std::int64_t work = small ? packs : (packs + tree.ranks - 1) / tree.ranks;
  const auto grid = static_cast<unsigned>(
      std::clamp<std::int64_t>((work + kThreads - 1) / kThreads, 1, std::min(blocks, RankRegion::kMostBlocks)));
  with_tree(tree, [&]<int kSums>(std::integral_constant<int, kSums>) {
    if (small)
      small_exchange_kernel<kSums><<<grid, kThreads, 0, stream_of(exec)>>>(call, packs);
    else
      divided_exchange_kernel<kSums><<<grid, kThreads, 0, stream_of(exec)>>>(call);
  });
  check_launch("exchange_sums");
}

void meet_ranks(const Exec& exec, const SumTree& tree, const RankRegions& regions) {
  check_exchange(tree, {});
  meet_ranks_kernel<<<1, 32, 0, stream_of(exec)>>>({.tree = tree, .regions = regions});
  check_launch("meet_ranks");
}

void add_rank_sums(const Exec& exec, const SumTree& tree, DType dtype, std::int64_t elements,
                   std::span<const void* const> sums, double factor, void* out) {
  const SumSpan span{.dtype = dtype, .elements = elements};
  check_exchange(tree, {&span, 1});
  if (elements <= 0) return;
  Arrays arrays;
  for (std::size_t i = 0; i < sums.size(); ++i) arrays.sums[i] = static_cast<const std::byte*>(sums[i]);
  const std::int64_t packs = packs_of(span);
  with_tree(tree, [&]<int kSums>(std::integral_constant<int, kSums>) {
    const auto run = [&]<class T>(T) {
      add_rank_sums_kernel<T, kSums><<<stride_blocks(packs, kThreads), kThreads, 0, stream_of(exec)>>>(
          tree, arrays, packs, factor_of<T>(factor), static_cast<std::byte*>(out));
    };
    if (dtype == DType::float32)
      run(float{});
    else if (dtype == DType::float16)
      run(__half{});
    else
      run(double{});
  });
  check_launch("add_rank_sums");
}

}  // namespace bantam::kernels::cuda
