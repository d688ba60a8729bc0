// The fused head's first product: x·w1ᵀ cut along the inputs, one float32 part for a split or a cluster of splits.
#pragma once

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/cluster.cuh"
#include "bantam/kernels/common/cuda/mma/tile_products.cuh"
#include "bantam/kernels/head/classifier_head_rules.h"
#include "bantam/kernels/head/cuda/classifier_head_launch.cuh"

namespace bantam::kernels::cuda {

template <int kRows>
inline constexpr int kHiddenThreads = kRows == 128 ? 256 : 128;
/// Tiles on their way or in use, where a block may have as much shared memory (small batches: all of a split and one
/// more), and elsewhere (64 KiB).
template <class T, int kRows>
inline constexpr int kHiddenStages = kRows == 128     ? 4
                                     : sizeof(T) == 4 ? 5
                                     : kRows == 64    ? 4
                                                      : 3;
template <int kRows>
inline constexpr int kFewHiddenStages = kRows == 128 ? 2 : 3;

/// The tiles that one block multiplies: kRows samples by kHiddenTile units, 128 bytes of the inputs at a time.
template <class T, int kRows, int kStages>
struct HiddenTiles {
  static constexpr int kDepth = 128 / static_cast<int>(sizeof(T)), kUnits = static_cast<int>(kHiddenTile);
  using Samples = SharedTile<T, kRows, kDepth>;
  using Weights = SharedTile<T, kUnits, kDepth>;
  static constexpr int kStageBytes = Samples::kBytes + Weights::kBytes;
  static constexpr int kBytes = kStages * kStageBytes;

  __device__ static T* samples(char* shared, int step) {
    return reinterpret_cast<T*>(shared + step % kStages * kStageBytes);
  }
  __device__ static T* weights(char* shared, int step) {
    return reinterpret_cast<T*>(shared + step % kStages * kStageBytes + Samples::kBytes);
  }
};

/// A warp's part of the tile: 16 × 16 of 16 rows, else 32 × 32.
template <class T, int kRows>
struct HiddenSums {
  static constexpr int kM = kRows == 16 ? 16 : 32, kN = kRows == 16 ? 16 : 32;
  static constexpr int kWarpsAcross = static_cast<int>(kHiddenTile) / kN;
  WarpSums<T, kM, kN> sums;

  __device__ static int row() { return static_cast<int>(threadIdx.x) / 32 / kWarpsAcross * kM; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) / 32 % kWarpsAcross * kN; }
  __device__ void add(const T* samples, const T* weights) {
    using Tiles = HiddenTiles<T, kRows, 1>;
    sums.template add<Tiles::kDepth, false, false>(samples + row() * Tiles::Samples::kStride, Tiles::Samples::kStride,
                                                   weights + column() * Tiles::Weights::kStride,
                                                   Tiles::Weights::kStride);
  }
  template <class Store>
  __device__ void for_each(const Store& store) const {
    sums.for_pairs([&](int r, int c, float2 pair) { store(row() + r, column() + c, pair); });
  }
};

/// A thread's part of the tile: 16 threads across the units, the others down the samples.
template <int kRows>
struct HiddenSums<float, kRows> {
  static constexpr int kUnitThreads = 16, kSampleThreads = kHiddenThreads<kRows> / kUnitThreads;
  static constexpr int kM = kRows / kSampleThreads, kN = static_cast<int>(kHiddenTile) / kUnitThreads;
  ThreadSums<kM, kN, kSampleThreads, kUnitThreads> sums;

  __device__ static int row() { return static_cast<int>(threadIdx.x) / kUnitThreads; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % kUnitThreads; }
  __device__ void add(const float* samples, const float* weights) {
    using Tiles = HiddenTiles<float, kRows, 1>;
    sums.template add<Tiles::kDepth>(samples + row() * Tiles::Samples::kStride, Tiles::Samples::kStride,
                                     weights + column() * Tiles::Weights::kStride, Tiles::Weights::kStride);
  }
  template <class Store>
  __device__ void for_each(const Store& store) const {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) store(row() + i * kSampleThreads, column() + j * kUnitThreads, sums.v[i][j]);
    }
  }
};

/// A tile of a part in memory.
struct HiddenPart {
  float* data;  // (batch, hidden)
  std::int64_t hidden;
  int rows, units;  // the part of the tile that exists

  template <class V>
  __device__ void store(int r, int c, V value) const {
    if (r < rows && c < units) *reinterpret_cast<V*>(data + r * hidden + c) = value;
  }
};

/// Adds up the sums of a cluster's blocks in order: each block pushes to each other that one's slice of the tile, and
/// writes the part of its own slice.
template <int kRows>
struct PieceGathering {
  static constexpr int kTogether = static_cast<int>(kSplitsTogether), kTile = static_cast<int>(kHiddenTile);
  static constexpr int kSlice = kRows * kTile / kTogether;  // floats
  static constexpr int kBytes = kTogether * kSlice * static_cast<int>(sizeof(float));
  static_assert(kSlice / 4 <= kHiddenThreads<kRows>, "a thread adds one quad at most");
  ClusterInbox& inbox;
  float* slices;  // (kTogether, kSlice)

  template <class T>
  __device__ void run(const HiddenSums<T, kRows>& sums, const HiddenPart& to) const {
    const int rank = static_cast<int>(blockIdx.y) % kTogether;
    float* mine = slices + rank * kSlice;
    inbox.wait_for_others();
    sums.for_each([&](int r, int c, auto value) {
      const int i = r * kTile + c;
      inbox.push(static_cast<unsigned>(i / kSlice), mine + i % kSlice, value);
    });
    inbox.wait();
    const int first = static_cast<int>(threadIdx.x) * 4;
    if (first >= kSlice) return;
    float4 sum{};
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const float4 part = load_four(slices + k * kSlice + first);
      sum.x += part.x;
      sum.y += part.y;
      sum.z += part.z;
      sum.w += part.w;
    }
    to.store((rank * kSlice + first) / kTile, first % kTile, sum);
  }
};

/// A part (batch, hidden) of partials is x·w1ᵀ over the inputs of a split, or of a cluster of them. Grid: tiles,
/// splits; splits past the last input sum to 0.
template <class T, int kRows, int kStages, bool kCluster>
__global__ void __launch_bounds__(kHiddenThreads<kRows>)
    hidden_partials_kernel(ClassifierHeadShape s, std::int64_t depth, const T* x, const T* w1, float* partials) {
  using Tiles = HiddenTiles<T, kRows, kStages>;
  extern __shared__ __align__(128) char shared[];
  __shared__ ClusterInbox inbox;
  if constexpr (kCluster) inbox.open(PieceGathering<kRows>::kBytes);
  const int unit_tiles = static_cast<int>((s.hidden + kHiddenTile - 1) / kHiddenTile);
  const std::int64_t row0 = static_cast<std::int64_t>(static_cast<int>(blockIdx.x) / unit_tiles) * kRows;
  const std::int64_t unit0 = static_cast<int>(blockIdx.x) % unit_tiles * kHiddenTile;
  const std::int64_t begin = blockIdx.y * depth, end = min(begin + depth, s.inputs);
  const int steps = static_cast<int>(max(end - begin + Tiles::kDepth - 1, std::int64_t{0}) / Tiles::kDepth);
  const auto load = [&](int step) {
    if (step < steps) {
      const std::int64_t column = begin + step * Tiles::kDepth;
      Tiles::Samples::template load<kHiddenThreads<kRows>>(Tiles::samples(shared, step), x, s.batch, s.inputs, row0,
                                                           column);
      Tiles::Weights::template load<kHiddenThreads<kRows>>(Tiles::weights(shared, step), w1, s.hidden, s.inputs, unit0,
                                                           column);
    }
    commit_copies();  // an empty group keeps the count
  };
  HiddenSums<T, kRows> sums;
  let_next_kernel_start();
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) load(step);
  for (int step = 0; step < steps; ++step) {
    wait_for_groups<kStages - 2>();
    __syncthreads();  // the step's tiles are there, and the step before is read by all
    load(step + kStages - 1);
    sums.add(Tiles::samples(shared, step), Tiles::weights(shared, step));
  }
  const std::int64_t part = kCluster ? blockIdx.y / kSplitsTogether : blockIdx.y;
  const HiddenPart to{partials + (part * s.batch + row0) * s.hidden + unit0, s.hidden,
                      static_cast<int>(min(s.batch - row0, std::int64_t{kRows})),
                      static_cast<int>(min(s.hidden - unit0, kHiddenTile))};
  if constexpr (kCluster) {
    PieceGathering<kRows>{inbox, reinterpret_cast<float*>(shared + Tiles::kBytes)}.run(sums, to);
  } else {
    sums.for_each([&](int r, int c, auto value) { to.store(r, c, value); });
  }
}

template <class T, int kRows, int kStages, bool kCluster>
inline constexpr int kHiddenBytes = HiddenTiles<T, kRows, kStages>::kBytes +
                                    (kCluster ? PieceGathering<kRows>::kBytes : 0);

template <bool kCluster>
int parts_of(const HiddenSplit& split) {
  return static_cast<int>(kCluster ? (split.splits + kSplitsTogether - 1) / kSplitsTogether : split.splits);
}

/// Not early: blocks that come while others fill the multiprocessors are distributed badly, which costs more than the
/// launch.
template <class T, int kRows, int kStages, bool kCluster>
HeadLaunch hidden_launch(const HiddenSplit& split) {
  constexpr int kTogether = kCluster ? static_cast<int>(kSplitsTogether) : 1;
  return {
      .grid = dim3(static_cast<unsigned>(split.tiles), static_cast<unsigned>(parts_of<kCluster>(split) * kTogether)),
      .threads = kHiddenThreads<kRows>,
      .shared_bytes = kHiddenBytes<T, kRows, kStages, kCluster>,
      .cluster = kTogether};
}

/// Returns the number of parts.
template <class T, int kRows, int kStages, bool kCluster>
int launch_hidden(const Exec& exec, const ClassifierHeadShape& s, const HiddenSplit& split, const void* x,
                  const void* w1, float* partials) {
  launch_head_kernel(exec, hidden_partials_kernel<T, kRows, kStages, kCluster>,
                     hidden_launch<T, kRows, kStages, kCluster>(split), s, split.depth, static_cast<const T*>(x),
                     static_cast<const T*>(w1), partials);
  return parts_of<kCluster>(split);
}

/// Returns the number of parts: as many as there are splits, or clusters of splits where the device holds those and the
/// batch is small (the tiles of large ones fill a multiprocessor each, and clusters of them wait for one another).
template <class T, int kRows>
int launch_hidden_partials(const Exec& exec, const ClassifierHeadShape& s, const HiddenSplit& split, const void* x,
                           const void* w1, float* partials) {
  constexpr int kMany = kHiddenStages<T, kRows>, kFew = kFewHiddenStages<kRows>;
  if constexpr (kRows < 128) {
    if (split.splits >= kSplitsTogether &&
        holds_cluster(exec, hidden_partials_kernel<T, kRows, kMany, true>, hidden_launch<T, kRows, kMany, true>(split)))
      return launch_hidden<T, kRows, kMany, true>(exec, s, split, x, w1, partials);
  }
  const bool many = Libraries::of(exec).kernel_limits().block_shared_bytes() >= kHiddenBytes<T, kRows, kMany, false>;
  return (many ? launch_hidden<T, kRows, kMany, false> : launch_hidden<T, kRows, kFew, false>)(exec, s, split, x, w1,
                                                                                               partials);
}

}  // namespace bantam::kernels::cuda
