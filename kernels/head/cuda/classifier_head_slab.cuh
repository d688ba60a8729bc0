// The products of the fused head's backward for one slab of the inputs: tiles in shared memory, dw1 = dhiddenᵀ·x summed
// over the batch, dx = dhidden·w1 tile by tile.
#pragma once

#include <algorithm>

#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/mma/tile_products.cuh"
#include "bantam/kernels/head/classifier_head_rules.h"

namespace bantam::kernels::cuda {

inline constexpr int kSlabThreads = 128;
inline constexpr int kSlabWarps = kSlabThreads / 32;
inline constexpr int kSlab = 64;  ///< inputs of a block

/// Tiles in shared memory for up to 64·kUnitTiles hidden units: the slab's weights, and a few stages of kRows samples.
template <class T, int kUnitTiles>
struct BackwardTiles {
  static constexpr int kUnits = 64 * kUnitTiles, kRows = 32;
  using Samples = SharedTile<T, kRows, kSlab>;
  using Hidden = SharedTile<T, kRows, kUnits>;
  using Weights = SharedTile<T, kUnits, kSlab>;
  static constexpr int kStagedBytes = sizeof(T) == 2 ? Samples::kBytes : 0;  ///< of dx, on its way to memory
  static constexpr int kFixedBytes = Weights::kBytes + kStagedBytes, kStageBytes = Samples::kBytes + Hidden::kBytes;
  static constexpr int kMostBytes = 64 * 1024;  ///< what every device has
  static constexpr int kStages = std::min((kMostBytes - kFixedBytes) / kStageBytes, 4);
  static_assert(kStages >= 1);

  static int steps(std::int64_t batch) { return static_cast<int>((batch + kRows - 1) / kRows); }
  static int bytes(std::int64_t batch) { return kFixedBytes + std::min(steps(batch), kStages) * kStageBytes; }

  __device__ static T* weights(char* shared) { return reinterpret_cast<T*>(shared); }
  __device__ static T* staged(char* shared) { return reinterpret_cast<T*>(shared + Weights::kBytes); }
  __device__ static T* samples(char* shared, int step) {
    return reinterpret_cast<T*>(shared + kFixedBytes + step % kStages * kStageBytes);
  }
  __device__ static T* hidden(char* shared, int step) {
    return reinterpret_cast<T*>(shared + kFixedBytes + step % kStages * kStageBytes + Samples::kBytes);
  }
};

/// A block's sums of dw1, units by kSlab inputs.
template <class T, int kUnitTiles>
struct WeightSums {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  static constexpr int kUnits = Tiles::kUnits / kSlabWarps;  // of a warp
  WarpSums<T, kUnits, kSlab> sums;
  __device__ static int unit() { return static_cast<int>(threadIdx.x) / 32 * kUnits; }
  __device__ void add(const T* dhidden, const T* x, int rows) {
#pragma unroll
    for (int k = 0; k < Tiles::kRows; k += 16) {
      if (k >= rows) break;
      sums.template add<16, true, true>(dhidden + k * Tiles::Hidden::kStride + unit(), Tiles::Hidden::kStride,
                                        x + k * Tiles::Samples::kStride, Tiles::Samples::kStride);
    }
  }
  template <class Store>
  __device__ void for_pairs(const Store& store) const {
    sums.for_pairs([&](int r, int c, float2 pair) { store(unit() + r, c, pair); });
  }
};

template <int kUnitTiles>
struct WeightSums<float, kUnitTiles> {
  using Tiles = BackwardTiles<float, kUnitTiles>;
  static constexpr int kQuads = kSlab / 4, kUnits = Tiles::kUnits / (kSlabThreads / kQuads);  // of a thread
  ThreadRowSums<kUnits> sums;
  __device__ static int unit() { return static_cast<int>(threadIdx.x) / kQuads * kUnits; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % kQuads * 4; }
  __device__ void add(const float* dhidden, const float* x, int rows) {
#pragma unroll
    for (int k = 0; k < Tiles::kRows; k += 16) {
      if (k >= rows) break;
      sums.template add_transposed<16>(dhidden + k * Tiles::Hidden::kStride + unit(), Tiles::Hidden::kStride,
                                       x + k * Tiles::Samples::kStride + column(), Tiles::Samples::kStride);
    }
  }
  template <class Store>
  __device__ void for_pairs(const Store& store) const {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      store(unit() + i, column(), float2{sums.v[i].x, sums.v[i].y});
      store(unit() + i, column() + 2, float2{sums.v[i].z, sums.v[i].w});
    }
  }
};

/// kSamples rows of dx: the products, then whole 16 bytes to memory. A warp computes 16 of the slab's columns.
template <class T, int kUnitTiles, int kSamples>
__device__ void multiply_rows(const ClassifierHeadShape& s, const T* dhidden, const T* weights, T* staged, T* dx,
                              std::int64_t row0, std::int64_t column0) {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  constexpr int kStride = Tiles::Samples::kStride, kColumns = 16, kLanes = Tiles::Samples::kLanes;
  static_assert(kSlabWarps * kColumns == kSlab);
  const int column = static_cast<int>(threadIdx.x) / 32 * kColumns, lane = static_cast<int>(threadIdx.x) % 32;
  WarpSums<T, kSamples, kColumns> sums;
  sums.template add<Tiles::kUnits, false, true>(dhidden, Tiles::Hidden::kStride, weights + column,
                                                Tiles::Weights::kStride);
  T* mine = staged + column;
  __syncwarp();  // what the warp staged before is on its way
  sums.for_pairs([&](int r, int c, float2 pair) {
    *reinterpret_cast<typename HalfPair<T>::Vector*>(mine + r * kStride + c) = HalfPair<T>::pack(pair.x, pair.y);
  });
  __syncwarp();
  constexpr int kChunks = kColumns / kLanes;
#pragma unroll
  for (int i = lane; i < kSamples * kChunks; i += 32) {
    const int r = i / kChunks, c = i % kChunks * kLanes;
    const std::int64_t to = column0 + column + c;
    if (row0 + r < s.batch && to < s.inputs)
      *reinterpret_cast<uint4*>(dx + (row0 + r) * s.inputs + to) =
          *reinterpret_cast<const uint4*>(mine + r * kStride + c);
  }
}

/// A tile of dx.
template <class T, int kUnitTiles>
struct InputProduct {
  __device__ static void make(const ClassifierHeadShape& s, const T* dhidden, const T* weights, T* staged, T* dx,
                              std::int64_t row0, std::int64_t column0) {
    if (s.batch - row0 > 16) {
      multiply_rows<T, kUnitTiles, 32>(s, dhidden, weights, staged, dx, row0, column0);
    } else {
      multiply_rows<T, kUnitTiles, 16>(s, dhidden, weights, staged, dx, row0, column0);
    }
  }
};

template <int kUnitTiles>
struct InputProduct<float, kUnitTiles> {
  __device__ static void make(const ClassifierHeadShape& s, const float* dhidden, const float* weights, float*,
                              float* dx, std::int64_t row0, std::int64_t column0) {
    using Tiles = BackwardTiles<float, kUnitTiles>;
    constexpr int kQuads = kSlab / 4, kRowThreads = kSlabThreads / kQuads, kRows = Tiles::kRows / kRowThreads;
    const int row = static_cast<int>(threadIdx.x) / kQuads, column = static_cast<int>(threadIdx.x) % kQuads * 4;
    ThreadRowSums<kRows> sums;
    sums.template add<Tiles::kUnits, kRowThreads>(dhidden + row * Tiles::Hidden::kStride, Tiles::Hidden::kStride,
                                                  weights + column, Tiles::Weights::kStride);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const std::int64_t to = row0 + row + i * kRowThreads;
      if (to < s.batch && column0 + column < s.inputs)
        *reinterpret_cast<float4*>(dx + to * s.inputs + column0 + column) = sums.v[i];
    }
  }
};

}  // namespace bantam::kernels::cuda
