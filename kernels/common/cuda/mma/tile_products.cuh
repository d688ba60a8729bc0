// GEMMs of tiles in shared memory: tensor cores for the half types, fused multiply-adds for float32 (no TF32). Sums
// in float32, in the order of k.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"
#include "bantam/kernels/common/cuda/numeric.cuh"

namespace bantam::kernels::cuda {

/// A tile on its way to shared memory, zeros outside the matrix: kRows rows of kColumns elements, 16 bytes between
/// rows, so that neither ldmatrix nor loads of 16 bytes by neighbouring rows meet in a bank (rows are multiples of 128
/// bytes).
template <class T, int kRows, int kColumns>
struct SharedTile {
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
  static constexpr int kChunks = kColumns / kLanes;  ///< of 16 bytes
  static constexpr int kStride = kColumns + kLanes;  ///< elements between rows
  static constexpr int kBytes = kRows * kStride * static_cast<int>(sizeof(T));
  static_assert(kColumns * sizeof(T) % 128 == 0);

  /// Starts the copy of rows [row, row + kRows) and columns [column, column + kColumns) of a (rows, columns) matrix;
  /// columns are whole chunks. All kThreads threads of the block copy.
  template <int kThreads>
  __device__ static void load(T* tile, const T* matrix, std::int64_t rows, std::int64_t columns, std::int64_t row,
                              std::int64_t column) {
    constexpr int kTogether = kThreads / kChunks;  // rows
    static_assert(kThreads % kChunks == 0 && kRows % kTogether == 0);
    const int r = static_cast<int>(threadIdx.x) / kChunks, c = static_cast<int>(threadIdx.x) % kChunks * kLanes;
    const int inside_rows = column + c < columns ? static_cast<int>(min(rows - row, std::int64_t{kRows})) : 0;
    const T* from = matrix + (row + r) * columns + column + c;
    T* to = tile + r * kStride + c;
#pragma unroll
    for (int k = 0; k < kRows; k += kTogether, from += kTogether * columns) {
      const bool inside = r + k < inside_rows;
      copy_async_or_zero(to + k * kStride, inside ? from : matrix, inside);
    }
  }
};

/// One warp's kM × kN sums (multiples of 16) of half products, as mma fragments.
template <class T, int kM, int kN>
struct WarpSums {
  static constexpr int kRowTiles = kM / 16, kColumnTiles = kN / 8;
  float v[kRowTiles][kColumnTiles][4] = {};

  /// sums += A·B over kDepth. A: rows `a` of `a_stride` (m, k), or (k, m) where kTransposedA. B: rows `b` (n, k), or
  /// (k, n) where kRowsOfK. Pointers to the warp's first row and column.
  template <int kDepth, bool kTransposedA, bool kRowsOfK>
  __device__ void add(const T* a, int a_stride, const T* b, int b_stride) {
    const int lane = static_cast<int>(threadIdx.x % 32), low = lane % 8, bit3 = lane / 8 % 2, bit4 = lane / 16;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      std::uint32_t left[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        if constexpr (kTransposedA) {
          load_matrices_transposed(left[i], shared_address(a + (k + bit4 * 8 + low) * a_stride + i * 16 + bit3 * 8));
        } else {
          load_matrices(left[i], shared_address(a + (i * 16 + bit3 * 8 + low) * a_stride + k + bit4 * 8));
        }
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles; j += 2) {
        std::uint32_t right[4];
        if constexpr (kRowsOfK) {
          load_matrices_transposed(right, shared_address(b + (k + bit3 * 8 + low) * b_stride + j * 8 + bit4 * 8));
        } else {
          load_matrices(right, shared_address(b + (j * 8 + bit4 * 8 + low) * b_stride + k + bit3 * 8));
        }
        const std::uint32_t first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          WarpMma<T>::multiply_add(v[i][j], left[i], first);
          WarpMma<T>::multiply_add(v[i][j + 1], left[i], second);
        }
      }
    }
  }

  /// Calls store(row, column, two neighbours) for each pair of sums, relative to the warp's first.
  template <class Store>
  __device__ void for_pairs(const Store& store) const {
    const int row = static_cast<int>(threadIdx.x % 32) / 4, column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        store(i * 16 + row, j * 8 + column, float2{v[i][j][0], v[i][j][1]});
        store(i * 16 + row + 8, j * 8 + column, float2{v[i][j][2], v[i][j][3]});
      }
    }
  }
};

__device__ inline float4 load_four(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ inline float lane_of(const float4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

/// One thread's sums of float products: rows row + i·kRowStep, columns column + j·kColumnStep, where B is stored (n,
/// k).
template <int kRows, int kColumns, int kRowStep, int kColumnStep>
struct ThreadSums {
  float v[kRows][kColumns] = {};

  template <int kDepth>
  __device__ void add(const float* a, int a_stride, const float* b, int b_stride) {
#pragma unroll 2
    for (int k = 0; k < kDepth; k += 4) {
      float4 left[kRows], right[kColumns];
#pragma unroll
      for (int i = 0; i < kRows; ++i) left[i] = load_four(a + i * kRowStep * a_stride + k);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) right[j] = load_four(b + j * kColumnStep * b_stride + k);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int j = 0; j < kColumns; ++j) v[i][j] = fmaf(lane_of(left[i], e), lane_of(right[j], e), v[i][j]);
        }
      }
    }
  }
};

/// One thread's sums of float products for B stored (k, n): kRows rows by four neighbouring columns.
template <int kRows>
struct ThreadRowSums {
  float4 v[kRows] = {};

  __device__ void add_scaled(int i, float a, const float4& b) {
    v[i].x = fmaf(a, b.x, v[i].x);
    v[i].y = fmaf(a, b.y, v[i].y);
    v[i].z = fmaf(a, b.z, v[i].z);
    v[i].w = fmaf(a, b.w, v[i].w);
  }
  /// A stored (m, k): rows i·kRowStep.
  template <int kDepth, int kRowStep>
  __device__ void add(const float* a, int a_stride, const float* b, int b_stride) {
#pragma unroll 2
    for (int k = 0; k < kDepth; k += 4) {
      float4 left[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) left[i] = load_four(a + i * kRowStep * a_stride + k);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float4 right = load_four(b + (k + e) * b_stride);
#pragma unroll
        for (int i = 0; i < kRows; ++i) add_scaled(i, lane_of(left[i], e), right);
      }
    }
  }
  /// A stored (k, m): kRows (a multiple of 4) neighbouring columns of A.
  template <int kDepth>
  __device__ void add_transposed(const float* a, int a_stride, const float* b, int b_stride) {
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      const float4 right = load_four(b + k * b_stride);
#pragma unroll
      for (int i = 0; i < kRows; i += 4) {
        const float4 left = load_four(a + k * a_stride + i);
#pragma unroll
        for (int e = 0; e < 4; ++e) add_scaled(i + e, lane_of(left, e), right);
      }
    }
  }
};

}  // namespace bantam::kernels::cuda
