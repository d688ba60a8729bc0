// Attention on the CPU: a head's scores in tiles of queries and keys, by one-thread GEMMs on the rows of qkv where they
// lie. Half types are widened tile by tile. A head is computed by one part, in a fixed order.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "bantam/base/parallel.h"
#include "bantam/kernels/attention/attention_parts.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/cpu/thread_scratch.h"
#include "bantam/kernels/common/cpu/vector_math.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/matmul/cpu/gemm.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kKeys = kWholeHeadTokens;  // of a tile of scores
constexpr std::int64_t kQueries = 256;            // of a tile of forward, at most
constexpr std::int64_t kBackwardQueries = 128;    // of a tile of backward: its order of sums
/// From a row of scores to the next: an odd number of cache lines, so that rows spread over a cache's sets.
constexpr std::int64_t kScoreRow = kKeys + 16;

constexpr std::int64_t kForwardFloats = kQueries * (kScoreRow + 2 * kMostHeadSize + 2) + kKeys * kMostHeadSize;
constexpr std::int64_t kBackwardFloats =
    kBackwardQueries * (2 * kScoreRow + 3 * kMostHeadSize) + 4 * kKeys * kMostHeadSize;

/// A thread's tiles, cut from the start.
class Tiles {
 public:
  float* cut(std::int64_t floats) {
    float* tile = next_;
    next_ += floats;
    return tile;
  }

 private:
  struct Scratch {};
  float* next_ = thread_scratch<Scratch, static_cast<std::size_t>(std::max(kForwardFloats, kBackwardFloats))>();
};

/// Rows of a head in qkv, o or a gradient of them.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride, size;

  HeadRows from(std::int64_t row) const { return {data + row * stride, stride, size}; }
};

/// `rows` rows as a GEMM reads them: float32 where they lie, half types widened into `tile`.
template <class T>
MatrixView read_rows(HeadRows<const T> from, std::int64_t rows, float* tile) {
  if constexpr (std::is_same_v<T, float>) {
    return {from.data, from.stride, false};
  } else {
    for (std::int64_t r = 0; r < rows; ++r) widen(from.data + r * from.stride, tile + r * from.size, from.size);
    return {tile, from.size, false};
  }
}

MatrixView transposed(MatrixView view) {
  view.transposed = !view.transposed;
  return view;
}

/// The heads of a call; head `i` is head i % heads of sample i / heads.
struct Heads {
  const AttentionShape& shape;

  std::int64_t count() const { return shape.batch * shape.heads; }
  /// `part`: 0 queries, 1 keys, 2 values.
  template <class U>
  HeadRows<U> qkv(U* data, std::int64_t i, std::int64_t part) const {
    const std::int64_t token = i / shape.heads * shape.tokens, channels = shape.channels();
    return {data + (token * 3 + part) * channels + i % shape.heads * shape.size, 3 * channels, shape.size};
  }
  template <class U>
  HeadRows<U> o(U* data, std::int64_t i) const {
    const std::int64_t token = i / shape.heads * shape.tokens, channels = shape.channels();
    return {data + token * channels + i % shape.heads * shape.size, channels, shape.size};
  }
};

/// Multiplies a row of scores by the scale; returns the largest, or `top` where that is larger. NaN is never largest.
float scale_row(float* row, std::int64_t keys, float scale, float top) {
#pragma omp simd reduction(max : top)
  for (std::int64_t j = 0; j < keys; ++j) {
    const float score = row[j] * scale;
    row[j] = score;
    top = score > top ? score : top;
  }
  return top;
}

/// The row's e^(score - top), and their sum.
float exp_row(float* row, std::int64_t keys, float top) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < keys; ++j) {
    const float p = exp_bounded(row[j] - top);
    row[j] = p;
    sum += p;
  }
  return sum;
}

void multiply_row(const float* from, std::int64_t count, float factor, float* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

/// Rounds a row of at most kKeys values to T.
template <class T>
void round_row(float* row, std::int64_t keys) {
  if constexpr (!std::is_same_v<T, float>) {
    T rounded[kKeys];
    narrow(row, rounded, keys);
    widen(rounded, row, keys);
  }
}

template <class T>
struct ForwardCall {
  Heads heads;
  const T* qkv;
  T* o;
  float* lse;  ///< or null

  /// Queries [first, first + queries) of head `i`: an online softmax over tiles of keys.
  void run(std::int64_t i, std::int64_t first, std::int64_t queries) const {
    const AttentionShape& s = heads.shape;
    Tiles tiles;
    float* const scores = tiles.cut(kQueries * kScoreRow);
    float* const query_tile = tiles.cut(kQueries * kMostHeadSize);
    float* const sums = tiles.cut(kQueries * kMostHeadSize);  // (queries, size)
    float *const tops = tiles.cut(kQueries), *const totals = tiles.cut(kQueries);
    float* const key_tile = tiles.cut(kKeys * kMostHeadSize);
    const MatrixView q = read_rows<T>(heads.qkv(qkv, i, 0).from(first), queries, query_tile);
    for (std::int64_t key = 0; key < s.tokens; key += kKeys) {
      const std::int64_t keys = std::min(kKeys, s.tokens - key);
      const MatrixView k = read_rows<T>(heads.qkv(qkv, i, 1).from(key), keys, key_tile);
      gemm({queries, keys, s.size}, q, transposed(k), scores, kScoreRow, false);
      for (std::int64_t r = 0; r < queries; ++r) {
        float* row = scores + r * kScoreRow;
        const float before = key == 0 ? -std::numeric_limits<float>::infinity() : tops[r];
        tops[r] = scale_row(row, keys, s.scale, before);
        const float sum = exp_row(row, keys, tops[r]);
        round_row<T>(row, keys);
        if (key == 0) {
          totals[r] = sum;
          continue;
        }
        const float factor = exp_bounded(before - tops[r]);
        totals[r] = totals[r] * factor + sum;
        multiply_row(sums + r * s.size, s.size, factor, sums + r * s.size);
      }
      const MatrixView v = read_rows<T>(heads.qkv(qkv, i, 2).from(key), keys, key_tile);
      gemm({queries, s.size, keys}, {scores, kScoreRow, false}, v, sums, s.size, key > 0);
    }
    const HeadRows<T> to = heads.o(o, i).from(first);
    for (std::int64_t r = 0; r < queries; ++r) {
      float* row = sums + r * s.size;
      multiply_row(row, s.size, 1.0f / totals[r], row);
      narrow(row, to.data + r * to.stride, s.size);
      if (lse != nullptr) lse[i * s.tokens + first + r] = tops[r] + std::log(totals[r]);
    }
  }
};

/// Queries of a part: whole tiles, and fewer where there are not enough heads for the threads. No bit depends on it.
std::int64_t queries_of_part(const AttentionShape& s, int threads) {
  constexpr std::int64_t kPartsOfThread = 4, kLeast = 48;
  const std::int64_t heads = s.batch * s.heads, wanted = (kPartsOfThread * threads + heads - 1) / heads;
  const std::int64_t queries = (s.tokens + wanted - 1) / wanted;
  return threads == 1 ? kQueries : std::clamp((queries + kLeast - 1) / kLeast * kLeast, kLeast, kQueries);
}

/// Σ a·b.
template <class T>
float dot(const T* a, const T* b, std::int64_t count) {
  float left[kMostHeadSize], right[kMostHeadSize], sum = 0;
  widen(a, left, count);
  widen(b, right, count);
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += left[i] * right[i];
  return sum;
}

/// A row of scores becomes P, a row of do·vᵀ becomes factor·dS.
void gradient_row(float* p, float* ds, std::int64_t keys, float scale, float lse, float delta, float factor) {
#pragma omp simd
  for (std::int64_t j = 0; j < keys; ++j) {
    p[j] = exp_bounded(p[j] * scale - lse);
    ds[j] = p[j] * (ds[j] - delta) * factor;
  }
}

/// A gradient's rows while products are added to them: float32 gradients where they lie, others in `tile`.
template <class T>
HeadRows<float> sums_of(HeadRows<T> gradient, float* tile) {
  if constexpr (std::is_same_v<T, float>) {
    return gradient;
  } else {
    return {tile, gradient.size, gradient.size};
  }
}

/// Writes the sums, times `factor`, where they were not added in place.
template <class T>
void store_sums(HeadRows<float> sums, std::int64_t rows, float factor, HeadRows<T> gradient) {
  if constexpr (!std::is_same_v<T, float>) {
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = sums.data + r * sums.stride;
      multiply_row(row, sums.size, factor, row);
      narrow(row, gradient.data + r * gradient.stride, sums.size);
    }
  }
}

template <class T>
struct BackwardCall {
  Heads heads;
  const T *qkv, *o;
  const float* lse;
  const T* dout;
  T* dqkv;

  /// Head `i`; `dq_sums`: (tokens, size), of half types with several tiles of keys. The scale is in dS where sums are
  /// the gradient, else it is applied to sums.
  void run(std::int64_t i, float* dq_sums) const {
    constexpr bool kInPlace = std::is_same_v<T, float>;
    const AttentionShape& s = heads.shape;
    const float factor = kInPlace ? s.scale : 1.0f;
    Tiles tiles;
    float* const p = tiles.cut(kBackwardQueries * kScoreRow);
    float* const ds = tiles.cut(kBackwardQueries * kScoreRow);
    float* const query_tile = tiles.cut(kBackwardQueries * kMostHeadSize);
    float* const dout_tile = tiles.cut(kBackwardQueries * kMostHeadSize);
    float* const dq_tile = tiles.cut(kBackwardQueries * kMostHeadSize);
    float *const key_tile = tiles.cut(kKeys * kMostHeadSize), *const value_tile = tiles.cut(kKeys * kMostHeadSize);
    float *const dk_tile = tiles.cut(kKeys * kMostHeadSize), *const dv_tile = tiles.cut(kKeys * kMostHeadSize);
    for (std::int64_t key = 0; key < s.tokens; key += kKeys) {
      const std::int64_t keys = std::min(kKeys, s.tokens - key);
      const bool last = key + keys == s.tokens;
      const MatrixView k = read_rows<T>(heads.qkv(qkv, i, 1).from(key), keys, key_tile);
      const MatrixView v = read_rows<T>(heads.qkv(qkv, i, 2).from(key), keys, value_tile);
      const HeadRows<T> dk_rows = heads.qkv(dqkv, i, 1).from(key), dv_rows = heads.qkv(dqkv, i, 2).from(key);
      const HeadRows<float> dk = sums_of(dk_rows, dk_tile), dv = sums_of(dv_rows, dv_tile);
      for (std::int64_t query = 0; query < s.tokens; query += kBackwardQueries) {
        const std::int64_t queries = std::min(kBackwardQueries, s.tokens - query);
        const HeadRows<const T> do_rows = heads.o(dout, i).from(query), o_rows = heads.o(o, i).from(query);
        const MatrixView q = read_rows<T>(heads.qkv(qkv, i, 0).from(query), queries, query_tile);
        const MatrixView g = read_rows<T>(do_rows, queries, dout_tile);
        gemm({queries, keys, s.size}, q, transposed(k), p, kScoreRow, false);
        gemm({queries, keys, s.size}, g, transposed(v), ds, kScoreRow, false);
        for (std::int64_t r = 0; r < queries; ++r) {
          float *p_row = p + r * kScoreRow, *ds_row = ds + r * kScoreRow;
          const float delta = dot(do_rows.data + r * do_rows.stride, o_rows.data + r * o_rows.stride, s.size);
          gradient_row(p_row, ds_row, keys, s.scale, lse[i * s.tokens + query + r], delta, factor);
          round_row<T>(p_row, keys);
          round_row<T>(ds_row, keys);
        }
        const MatrixView p_view{p, kScoreRow, false}, ds_view{ds, kScoreRow, false};
        gemm({keys, s.size, queries}, transposed(p_view), g, dv.data, dv.stride, query > 0);
        gemm({keys, s.size, queries}, transposed(ds_view), q, dk.data, dk.stride, query > 0);
        const HeadRows<T> dq_rows = heads.qkv(dqkv, i, 0).from(query);
        const HeadRows<float> dq = sums_of(dq_rows, dq_sums != nullptr ? dq_sums + query * s.size : dq_tile);
        gemm({queries, s.size, keys}, ds_view, k, dq.data, dq.stride, key > 0);
        if (last) store_sums(dq, queries, s.scale, dq_rows);
      }
      store_sums(dk, keys, s.scale, dk_rows);
      store_sums(dv, keys, 1.0f, dv_rows);
    }
  }
};

}  // namespace

void attention_forward(const Exec& exec, const AttentionShape& shape, DType dtype, const void* qkv, void* o, float* lse,
                       Workspace) {
  check_attention_shape(shape);
  if (shape.rows() * shape.heads == 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const ForwardCall<T> call{{shape}, static_cast<const T*>(qkv), static_cast<T*>(o), lse};
    const std::int64_t queries = queries_of_part(shape, exec.threads), tiles = (shape.tokens + queries - 1) / queries;
    parallel_parts(call.heads.count() * tiles, exec.threads, [&](std::int64_t part) {
      const std::int64_t first = part % tiles * queries;
      call.run(part / tiles, first, std::min(queries, shape.tokens - first));
    });
  });
}

void attention_backward(const Exec& exec, const AttentionShape& shape, DType dtype, const AttentionSaved& saved,
                        const void* dout, void* dqkv, Workspace workspace) {
  const std::size_t needed = attention_backward_workspace_bytes(shape, dtype, DeviceKind::cpu);
  require_workspace(workspace, needed, "attention_backward");
  if (shape.rows() * shape.heads == 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const BackwardCall<T> call{{shape},   static_cast<const T*>(saved.qkv), static_cast<const T*>(saved.o),
                               saved.lse, static_cast<const T*>(dout),      static_cast<T*>(dqkv)};
    const std::int64_t heads = call.heads.count(), parts = needed > 0 ? attention_sum_parts(shape) : heads;
    parallel_parts(parts, exec.threads, [&](std::int64_t part) {
      float* const sums = needed > 0 ? static_cast<float*>(workspace.data) + part * shape.tokens * shape.size : nullptr;
      for (std::int64_t i = part; i < heads; i += parts) call.run(i, sums);
    });
  });
}

}  // namespace bantam::kernels::cpu
