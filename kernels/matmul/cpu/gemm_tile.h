// The inner product of gemm, and the packing of its operands: written once for any vector width, compiled for each
// instruction set.
#pragma once

#include <cstdint>
#include <cstring>

// Vectors wider than the build's are passed by inlined functions only.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace bantam::kernels::cpu {

/// A few rows of C: rows of A times a packed panel of B. Panels hold, for each step of the sum, the values of whole
/// vectors of columns, padded with zeros.
struct GemmTile {
  const float* a = nullptr;
  std::int64_t a_row = 0;  ///< from one row of A to the next; unused where A is packed (depth, rows)
  const float* b = nullptr;
  std::int64_t depth = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;
  const float* added = nullptr;  ///< the matrix that the sums are added to: C itself, or another like it; or null
  std::int64_t added_row = 0;
  const float* bias = nullptr;  ///< a value for each column, padded as panels are, which the sums start from; or null
};

template <class Vector>
[[gnu::always_inline]] inline Vector load_vector(const float* p) {
  Vector v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

template <class Vector>
[[gnu::always_inline]] inline void store_vector(float* p, const Vector& v) {
  std::memcpy(p, &v, sizeof(v));
}

/// Calls `body(r, v)` for each vector of a tile, unrolled: vectors stay in registers.
template <int R, int V, class Body>
[[gnu::always_inline]] inline void for_each_vector(Body&& body) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) body(r, v);
  }
}

/// R rows times V vectors of columns; R·V sums stay in registers. `Packed`: A lies as (depth, R).
template <class Vector, int R, int V, bool Packed>
[[gnu::always_inline]] inline void multiply_tile(const GemmTile& tile) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  Vector sum[R][V] = {};
  if (tile.bias != nullptr)
    for_each_vector<R, V>([&](int r, int v) { sum[r][v] = load_vector<Vector>(tile.bias + v * kLanes); });
  const float* rows[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) rows[r] = tile.a + (Packed ? r : r * tile.a_row);
  const float* b = tile.b;
  for (std::int64_t p = 0; p < tile.depth; ++p, b += V * kLanes) {
    Vector right[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) right[v] = load_vector<Vector>(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const float left = Packed ? tile.a[p * R + r] : rows[r][p];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] += left * right[v];
    }
  }
  if (tile.added != nullptr)
    for_each_vector<R, V>(
        [&](int r, int v) { sum[r][v] += load_vector<Vector>(tile.added + r * tile.added_row + v * kLanes); });
  for_each_vector<R, V>([&](int r, int v) { store_vector(tile.c + r * tile.c_row + v * kLanes, sum[r][v]); });
}

/// Eight rows of eight values become columns.
[[gnu::always_inline]] inline void transpose_8x8(const float* from, std::int64_t from_row, float* to,
                                                 std::int64_t to_row) {
  using Eight = float __attribute__((vector_size(32)));
  Eight in[8], pairs[8], quads[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) in[i] = load_vector<Eight>(from + i * from_row);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(in[i], in[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(in[i], in[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      quads[i + 2 * k] = __builtin_shufflevector(pairs[i + k], pairs[i + 2 + k], 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + 2 * k + 1] = __builtin_shufflevector(pairs[i + k], pairs[i + 2 + k], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    store_vector(to + i * to_row, __builtin_shufflevector(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
    store_vector(to + (i + 4) * to_row, __builtin_shufflevector(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));
  }
}

/// A panel of `width` columns, `columns` of them from B and the rest zero: row p of the panel is row p of B, or column
/// p where B is stored transposed. `from` is B's element (0, 0), `stride` what separates its stored rows.
[[gnu::always_inline]] inline void pack_panel(const float* from, std::int64_t stride, bool transposed,
                                              std::int64_t depth, std::int64_t columns, std::int64_t width, float* to) {
  if (!transposed) {
    for (std::int64_t p = 0; p < depth; ++p, from += stride, to += width) {
      if (columns == width) {
        std::memcpy(to, from, static_cast<std::size_t>(width) * sizeof(float));
      } else {
        for (std::int64_t j = 0; j < width; ++j) to[j] = j < columns ? from[j] : 0.0f;
      }
    }
    return;
  }
  const std::int64_t whole_depth = depth / 8 * 8, whole_columns = columns / 8 * 8;
  for (std::int64_t j = 0; j < whole_columns; j += 8) {
    for (std::int64_t p = 0; p < whole_depth; p += 8) {
      transpose_8x8(from + j * stride + p, stride, to + p * width + j, width);
    }
  }
  for (std::int64_t p = 0; p < depth; ++p) {
    for (std::int64_t j = p < whole_depth ? whole_columns : 0; j < width; ++j) {
      to[p * width + j] = j < columns ? from[j * stride + p] : 0.0f;
    }
  }
}

/// Columns of the panel that begins where `left` columns of a block are left: two vectors, or one where that is enough.
template <class Vector>
constexpr std::int64_t panel_width(std::int64_t left) {
  constexpr std::int64_t kLanes = sizeof(Vector) / sizeof(float);
  return left > kLanes ? 2 * kLanes : kLanes;
}

/// A block of B, (depth, columns), as panels one after the other. Stored rows are read from their start to their end,
/// also where they run across panels: a panel's share of a row is too short for prefetchers.
template <class Vector>
[[gnu::always_inline]] inline void pack_block(const float* from, std::int64_t stride, bool transposed,
                                              std::int64_t depth, std::int64_t columns, float* to) {
  constexpr std::int64_t kWidth = 2 * sizeof(Vector) / sizeof(float);
  const std::int64_t whole = transposed ? 0 : columns / kWidth;
  for (std::int64_t p = 0; p < depth; ++p) {
    const float* row = from + p * stride;
    float* panel = to + p * kWidth;
    for (std::int64_t t = 0; t < whole; ++t, row += kWidth, panel += depth * kWidth) {
      store_vector(panel, load_vector<Vector>(row));
      store_vector(panel + kWidth / 2, load_vector<Vector>(row + kWidth / 2));
    }
  }
  for (std::int64_t j = whole * kWidth; j < columns;) {
    const std::int64_t width = panel_width<Vector>(columns - j), used = columns - j < width ? columns - j : width;
    pack_panel(from + (transposed ? j * stride : j), stride, transposed, depth, used, width, to + j * depth);
    j += width;
  }
}

/// `rows` rows of an A that is stored transposed, in tiles of R rows (the last has what is left), `tile` floats apart:
/// each as (depth, its rows).
template <int R>
[[gnu::always_inline]] inline void pack_rows(const float* from, std::int64_t stride, std::int64_t depth,
                                             std::int64_t rows, std::int64_t tile, float* to) {
  constexpr std::int64_t kGroup = 8;  // stored rows: what is written is whole cache lines, what is read stays in cache
  for (std::int64_t first = 0; first < depth; first += kGroup, from += kGroup * stride) {
    const std::int64_t group = depth - first < kGroup ? depth - first : kGroup;
    const std::int64_t ahead = depth - first > 2 * kGroup ? kGroup * stride : 0;
    float* panel = to;
    std::int64_t row = 0;
    for (; row + R <= rows; row += R, panel += tile) {
      for (std::int64_t p = 0; p < group; ++p) {
        __builtin_prefetch(from + p * stride + row + ahead);
        std::memcpy(panel + (first + p) * R, from + p * stride + row, R * sizeof(float));
      }
    }
    const std::int64_t left = rows - row;
    for (std::int64_t p = 0; p < group; ++p) {
      for (std::int64_t r = 0; r < left; ++r) panel[(first + p) * left + r] = from[p * stride + row + r];
    }
  }
}

}  // namespace bantam::kernels::cpu
