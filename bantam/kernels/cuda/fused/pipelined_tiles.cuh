// Tiles of matrices on their way to shared memory, a few at a time: rows of whole 16 bytes, zeros outside the matrix.
#pragma once

#include <cstdint>

#include "bantam/kernels/cuda/warp_mma.cuh"

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
  /// columns are whole chunks. All kThreads threads of the block take part.
  template <int kThreads>
  __device__ static void load(T* tile, const T* matrix, std::int64_t rows, std::int64_t columns, std::int64_t row,
                              std::int64_t column) {
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
      const int r = i / kChunks, c = i % kChunks * kLanes;
      const bool inside = row + r < rows && column + c < columns;
      copy_async_or_zero(tile + r * kStride + c, inside ? matrix + (row + r) * columns + column + c : matrix, inside);
    }
  }
};

}  // namespace bantam::kernels::cuda
