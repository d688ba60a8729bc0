// The fused head's first product: x·w1ᵀ cut along the inputs, one float32 part a piece.
#pragma once

#include "bantam/kernels/classifier_head_rules.h"
#include "bantam/kernels/cuda/check.h"
#include "bantam/kernels/cuda/fused/tile_products.cuh"

namespace bantam::kernels::cuda {

template <int kRows>
inline constexpr int kHiddenThreads = kRows == 128 ? 256 : 128;
/// Tiles on their way or in use, where a block may have as much shared memory, and elsewhere (64 KiB).
template <int kRows>
inline constexpr int kHiddenStages = kRows == 128 ? 4 : 3;
template <int kRows>
inline constexpr int kFewHiddenStages = kRows == 128 ? 2 : 3;

/// What one block multiplies: kRows samples by kHiddenTile units, 128 bytes of the inputs at a time.
template <class T, int kRows, int kStages>
struct HiddenTiles {
  static constexpr int kDepth = 128 / static_cast<int>(sizeof(T)), kUnits = static_cast<int>(kHiddenTile);
  using Samples = SharedTile<T, kRows, kDepth>;
  using Weights = SharedTile<T, kUnits, kDepth>;
  static constexpr int kStageBytes = Samples::kBytes + Weights::kBytes;
  static constexpr int kBytes = kStages * kStageBytes;

  __device__ static T* samples(char* shared, std::int64_t step) {
    return reinterpret_cast<T*>(shared + step % kStages * kStageBytes);
  }
  __device__ static T* weights(char* shared, std::int64_t step) {
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
    sums.for_pairs([&](int r, int c, float2 pair) {
      store(row() + r, column() + c, pair.x);
      store(row() + r, column() + c + 1, pair.y);
    });
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

/// partials[split] (batch, hidden) = x·w1ᵀ over the split's inputs. Grid: tiles, splits.
template <class T, int kRows, int kStages>
__global__ void __launch_bounds__(kHiddenThreads<kRows>)
    hidden_partials_kernel(ClassifierHeadShape s, std::int64_t depth, const T* x, const T* w1, float* partials) {
  using Tiles = HiddenTiles<T, kRows, kStages>;
  extern __shared__ __align__(128) char shared[];
  const std::int64_t unit_tiles = (s.hidden + kHiddenTile - 1) / kHiddenTile;
  const std::int64_t row0 = blockIdx.x / unit_tiles * kRows, unit0 = blockIdx.x % unit_tiles * kHiddenTile;
  const std::int64_t begin = blockIdx.y * depth, end = min(begin + depth, s.inputs);
  const std::int64_t steps = (end - begin + Tiles::kDepth - 1) / Tiles::kDepth;
  const auto load = [&](std::int64_t step) {
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
  for (int step = 0; step < kStages - 1; ++step) load(step);
  for (std::int64_t step = 0; step < steps; ++step) {
    wait_for_groups<kStages - 2>();
    __syncthreads();  // the step's tiles are there, and the step before is read by all
    load(step + kStages - 1);
    sums.add(Tiles::samples(shared, step), Tiles::weights(shared, step));
  }
  float* part = partials + blockIdx.y * s.batch * s.hidden;
  sums.for_each([&](int r, int c, float sum) {
    if (row0 + r < s.batch && unit0 + c < s.hidden) part[(row0 + r) * s.hidden + unit0 + c] = sum;
  });
}

/// Lets a kernel use more shared memory than is allowed by default.
inline void allow_shared_bytes(const void* kernel, int bytes) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "cudaFuncSetAttribute");
}

template <class T, int kRows, int kStages>
void launch_hidden_stages(const Exec& exec, const ClassifierHeadShape& s, const HiddenSplit& split, const void* x,
                          const void* w1, float* partials) {
  const auto kernel = hidden_partials_kernel<T, kRows, kStages>;
  constexpr int kBytes = HiddenTiles<T, kRows, kStages>::kBytes;
  allow_shared_bytes(reinterpret_cast<const void*>(kernel), kBytes);
  const dim3 grid(static_cast<unsigned>(split.tiles), static_cast<unsigned>(split.splits));
  kernel<<<grid, kHiddenThreads<kRows>, kBytes, stream_of(exec)>>>(s, split.depth, static_cast<const T*>(x),
                                                                   static_cast<const T*>(w1), partials);
  check_launch("hidden_partials_kernel");
}

/// More stages hide more of the memory's latency; the sums are the same.
template <class T, int kRows>
void launch_hidden_partials(const Exec& exec, const ClassifierHeadShape& s, const HiddenSplit& split, const void* x,
                            const void* w1, float* partials) {
  constexpr int kMany = kHiddenStages<kRows>, kFew = kFewHiddenStages<kRows>;
  int allowed = 0;
  check_cuda(cudaDeviceGetAttribute(&allowed, cudaDevAttrMaxSharedMemoryPerBlockOptin, exec.device.index),
             "cudaDeviceGetAttribute");
  const bool many = allowed >= HiddenTiles<T, kRows, kMany>::kBytes;
  (many ? launch_hidden_stages<T, kRows, kMany> : launch_hidden_stages<T, kRows, kFew>)(exec, s, split, x, w1,
                                                                                        partials);
}

}  // namespace bantam::kernels::cuda
