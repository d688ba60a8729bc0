// Tiles of matrices on their way to shared memory, a few at a time: rows of whole 16 bytes, zeros outside the matrix.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"

namespace bantam::kernels::cuda {

/// Layout of a tile of kRows rows of kColumns elements: 16 bytes between rows, so that neither ldmatrix nor loads of 16
/// bytes by neighbouring rows meet in a bank (rows are multiples of 128 bytes).
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

}  // namespace bantam::kernels::cuda
