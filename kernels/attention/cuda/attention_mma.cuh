// Attention by tensor cores: rows of a head in shared memory, and how warps read them as operands of mma.sync.
//
// Every operand is a tile of 16 rows by 16 columns of what lies in shared memory. ldmatrix hands a lane its part of
// four 8x8 matrices, and which quarter of the tile is which matrix decides what operand the tile becomes:
//   straight: rows first, then columns. A (rows by columns); transposed: B whose depth are the rows.
//   crossed:  columns first, then rows. B whose depth are the columns; transposed: A whose depth are the rows.
#pragma once

#include <cstdint>

#include "bantam/kernels/attention/cuda/attention_rows.cuh"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/elementwise/cuda/curve_math.cuh"

namespace bantam::kernels::cuda {

/// Tokens whose heads a block has whole: thirteen tiles of 16. In backward 13 warps of keys and 3 of queries have the
/// registers of a multiprocessor.
inline constexpr int kMostWholeHeadTokens = 208;

/// A lane's address in a tile of 16 by 16 whose rows are kStride elements apart, in bytes.
template <int kStride>
__device__ inline std::uint32_t straight_lane() {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return static_cast<std::uint32_t>(((lane / 8 % 2 * 8 + lane % 8) * kStride + lane / 16 * 8) * 2);
}
template <int kStride>
__device__ inline std::uint32_t crossed_lane() {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return static_cast<std::uint32_t>(((lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 8) * 2);
}

/// sums of 16 rows by 16 columns += a·b, b as ldmatrix left it: two operands of 8 columns.
template <class T>
__device__ inline void multiply_16(float (&first)[4], float (&second)[4], const std::uint32_t (&a)[4],
                                   const std::uint32_t (&b)[4]) {
  WarpMma<T>::multiply_add(first, a, {b[0], b[1]});
  WarpMma<T>::multiply_add(second, a, {b[2], b[3]});
}

/// Sums of 16 rows by 16 columns, rounded to T, as the A operand whose depth are the columns.
template <class T>
__device__ inline void operand_of(const float (&first)[4], const float (&second)[4], std::uint32_t (&a)[4]) {
  a[0] = bits_of(HalfPair<T>::pack(first[0], first[1]));
  a[1] = bits_of(HalfPair<T>::pack(first[2], first[3]));
  a[2] = bits_of(HalfPair<T>::pack(second[0], second[1]));
  a[3] = bits_of(HalfPair<T>::pack(second[2], second[3]));
}

/// Eight elements of a row, zeros from `size` on. `wide`: rows are aligned to 16 bytes and `size` a multiple of 8; else
/// to 8 bytes and of 4.
template <class T>
__device__ inline uint4 load_eight(const T* row, int column, int size, bool wide) {
  uint4 v = make_uint4(0, 0, 0, 0);
  if (column >= size) return v;
  if (wide) return *reinterpret_cast<const uint4*>(row + column);
  const auto* from = reinterpret_cast<const uint2*>(row + column);
  const uint2 low = from[0];
  v.x = low.x, v.y = low.y;
  if (column + 4 < size) {
    const uint2 high = from[1];
    v.z = high.x, v.w = high.y;
  }
  return v;
}

/// Rows of kSize elements (a multiple of 16, zeros from a head's size on), 16 bytes apart, so that the eight rows that
/// ldmatrix reads at once lie in different banks.
template <class T, int kSize>
struct MmaRows {
  static constexpr int kStride = kSize + 8;  ///< elements
  static constexpr int kRowBytes = kStride * 2;
  static constexpr int kChunks = kSize / 8;  ///< of 16 bytes
  static constexpr int kSteps = kSize / 16;  ///< of the depth of an mma
  using Sums = float[2 * kSteps][4];         ///< of 16 rows: pairs of 8 columns
  using Operand = std::uint32_t[kSteps][4];  ///< 16 rows as A

  /// Starts the copy of `count` rows from row `first` on, by `threads` threads; zeros from row `tokens` on. Rows that
  /// are not wide are there when it returns.
  __device__ static void copy(T* to, const HeadRows<const T>& from, int first, int count, const AttentionExtents& e,
                              bool wide, int thread, int threads) {
    if (!wide) {
      for (int i = thread; i < count * kChunks; i += threads) {
        const int r = i / kChunks, c = first + r < e.tokens ? i % kChunks * 8 : kSize;
        *reinterpret_cast<uint4*>(to + r * kStride + i % kChunks * 8) =
            load_eight(from.row(c < kSize ? first + r : 0), c, e.size, false);
      }
      return;
    }
    const int c = thread % kChunks * 8, step = threads / kChunks;
    const int there = c < e.size ? e.tokens - first : 0;  // rows with this column
    int r = thread / kChunks;
    if (r >= step) return;  // threads that make up no whole row
    T* at = to + r * kStride + c;
    const T* row = from.row(first + r) + c;
#pragma unroll 4
    for (; r < count; r += step, at += step * kStride, row += step * from.stride)
      copy_async_or_zero(at, r < there ? row : from.first, r < there);
  }

  /// 16 rows as A operands.
  __device__ static void load_operand(std::uint32_t rows, Operand& a) {
#pragma unroll
    for (int d = 0; d < kSteps; ++d) load_matrices(a[d], rows + straight_lane<kStride>() + d * 32);
  }

  /// Stores sums of 16 rows, times a factor of the lane's first and second row.
  __device__ static void stage(T* rows, const Sums& sums, float first, float second) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    auto* to = reinterpret_cast<std::uint32_t*>(rows + lane / 4 * kStride + lane % 4 * 2);
#pragma unroll
    for (int n = 0; n < 2 * kSteps; ++n) {
      to[n * 4] = bits_of(HalfPair<T>::pack(sums[n][0] * first, sums[n][1] * first));
      to[n * 4 + 8 * kStride / 2] = bits_of(HalfPair<T>::pack(sums[n][2] * second, sums[n][3] * second));
    }
  }
  /// The calling warp writes `count` rows that it has staged, from row `first` on.
  __device__ static void write(const HeadRows<T>& to, const T* rows, int first, int count, const AttentionExtents& e,
                               bool wide) {
    __syncwarp();
    for (int i = static_cast<int>(threadIdx.x) % 32; i < count * kChunks; i += 32) {
      const int r = i / kChunks, c = i % kChunks * 8;
      if (first + r >= e.tokens || c >= e.size) continue;
      const uint4 v = *reinterpret_cast<const uint4*>(rows + r * kStride + c);
      T* at = to.row(first + r) + c;
      if (wide) {
        *reinterpret_cast<uint4*>(at) = v;
      } else {
        *reinterpret_cast<uint2*>(at) = make_uint2(v.x, v.y);
        if (c + 4 < e.size) *reinterpret_cast<uint2*>(at + 4) = make_uint2(v.z, v.w);
      }
    }
    __syncwarp();
  }
};

/// Rows that a block reads in turn, in chunks of a ring: keys and values, or queries and gradients.
struct RingPlan {
  int tiles = 0;   ///< blocks a sample and head
  int warps = 0;   ///< of a block
  int stages = 0;  ///< chunks in shared memory, at least 2
  int rows = 0;    ///< that the ring has room for: fewer than its chunks have where all rows fit
  int bytes = 0;
  bool wide = false;  ///< rows are copied 16 bytes at a time
};

/// Waits for the copies of the chunk that is next: those of the stages - 2 after it may be under way.
__device__ inline void wait_for_chunk(int stages) {
  if (stages == 2) {
    wait_for_groups<0>();
  } else if (stages == 3) {
    wait_for_groups<1>();
  } else {
    wait_for_groups<2>();
  }
  __syncthreads();
}

/// A barrier of some of a block's warps; `threads` is all that arrive or wait.
__device__ inline void wait_at_barrier(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void arrive_at_barrier(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace bantam::kernels::cuda
