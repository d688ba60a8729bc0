// Where rows of a head lie, and how the heads of a batch become thread blocks.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "bantam/base/error.h"
#include "bantam/kernels/attention/attention.h"
#include "bantam/kernels/common/cuda/numeric.cuh"

namespace bantam::kernels::cuda {

/// Rows of one head, a token a row: `size` elements each, `stride` elements apart.
template <class T>
struct HeadRows {
  T* first;
  std::int64_t stride;
  __device__ T* row(int token) const { return first + token * stride; }
};

/// The tensors' extents as kernels see them. A sample and head is one of batch·heads.
struct AttentionExtents {
  explicit AttentionExtents(const AttentionShape& s)
      : tokens(static_cast<int>(s.tokens)),
        heads(static_cast<int>(s.heads)),
        size(static_cast<int>(s.size)),
        scale(s.scale) {}

  int tokens, heads, size;
  float scale;

  __device__ std::int64_t channels() const { return std::int64_t{heads} * size; }
  /// Queries (0), keys (1) or values (2) of a tensor (batch, tokens, 3, heads, size).
  template <class T>
  __device__ HeadRows<T> rows_of_qkv(T* qkv, int sample_head, int part) const {
    const int sample = sample_head / heads, head = sample_head % heads;
    return {qkv + (std::int64_t{sample} * tokens * 3 + part) * channels() + std::int64_t{head} * size, 3 * channels()};
  }
  /// Rows of a tensor (batch, tokens, heads, size).
  template <class T>
  __device__ HeadRows<T> rows_of_output(T* o, int sample_head) const {
    const int sample = sample_head / heads, head = sample_head % heads;
    return {o + std::int64_t{sample} * tokens * channels() + std::int64_t{head} * size, channels()};
  }
  /// Rows of a tensor (batch, heads, tokens).
  __device__ std::int64_t first_row(int sample_head) const { return std::int64_t{sample_head} * tokens; }
};

/// Whether the device code that is being compiled multiplies T by tensor cores; else by fused multiply-adds. A kernel
/// of the other kind is empty, and not launched: without it, 7.5 would have more code for its bfloat16, which tensor
/// cores do not support there, than for all else.
template <class T>
__device__ constexpr bool uses_mma() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return std::is_same_v<T, __half>;
#else
  return !std::is_same_v<T, float>;
#endif
}

/// Blocks of a grid in which each sample and head has `tiles`, neighbours of one another, so that they read the same
/// rows at about the same time. Throws ShapeError where there are 2^31 or more.
inline unsigned attention_blocks(const AttentionShape& s, std::int64_t tiles) {
  constexpr std::int64_t kMost = 0x7fffffff;
  if (s.tokens > kMost / 4 || s.batch * s.heads > kMost / tiles)
    throw ShapeError("attention on CUDA: " + std::to_string(s.batch) + " samples of " + std::to_string(s.heads) +
                     " heads and " + std::to_string(s.tokens) + " tokens are 2^31 thread blocks or more");
  return static_cast<unsigned>(s.batch * s.heads * tiles);
}

/// A block's sample and head, and its tile of that.
struct BlockTile {
  __device__ explicit BlockTile(int tiles)
      : sample_head(static_cast<int>(blockIdx.x) / tiles), tile(static_cast<int>(blockIdx.x) % tiles) {}
  int sample_head, tile;
};

}  // namespace bantam::kernels::cuda
