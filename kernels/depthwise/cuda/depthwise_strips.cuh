// Depthwise kernels on CUDA that walk down strips share this code: a thread keeps N channels of a strip of columns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "bantam/kernels/common/cuda/reduce/image_chunks.cuh"
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"
#include "bantam/kernels/depthwise/depthwise_parts.h"

namespace bantam::kernels::cuda {

/// A task's share of an image: rows [first_row, end_row) and a strip of columns from first_column on.
struct StripTask {
  std::int64_t image;
  int first_row, end_row, first_column;
};

/// An image pass cut into tasks, strips of a row chunk innermost. Extents of x are in_*, of y and dy out_*.
struct Strips {
  int in_h, in_w, out_h, out_w, pad_top, pad_left, channels;
  int rows, rows_each, columns_each;  ///< rows that the chunks share, rows of a chunk, columns of a strip
  std::uint32_t tasks;
  FastDivide by_strips, by_chunks;

  __device__ StripTask task(std::uint32_t index) const {
    const Divided strip = by_strips.divide(index), chunk = by_chunks.divide(strip.quotient);
    const int first = static_cast<int>(chunk.remainder) * rows_each;
    return {chunk.quotient, first, min(first + rows_each, rows), static_cast<int>(strip.remainder) * columns_each};
  }
};

/// Strips of a pass over `s`, cut so. Throws ShapeError for more than 2^31 tasks.
inline Strips strips_of(const DepthwiseConv2dShape& s, const StripCut& cut) {
  if (cut.tasks >> 31 != 0) throw ShapeError("depthwise_conv2d: the batch is too large for one call on CUDA");
  Strips g{};
  g.in_h = extent(s.in_h);
  g.in_w = extent(s.in_w);
  g.out_h = extent(s.out_h());
  g.out_w = extent(s.out_w());
  g.pad_top = static_cast<int>(s.pad_top);
  g.pad_left = static_cast<int>(s.pad_left);
  g.channels = extent(s.channels);
  g.rows = extent(cut.rows);
  g.rows_each = extent(cut.rows_each);
  g.columns_each = extent(cut.columns_each);
  g.tasks = static_cast<std::uint32_t>(cut.tasks);
  g.by_strips = FastDivide(cut.strips);
  g.by_chunks = FastDivide(cut.chunks);
  return g;
}

/// N channels of one position as they lie in memory, in whole words so that a load is one instruction.
template <class T, int N>
struct RawPack {
  static constexpr int kBytes = N * static_cast<int>(sizeof(T));
  using Word = std::conditional_t<kBytes % 4 == 0, std::uint32_t, std::uint16_t>;
  static constexpr int kWords = kBytes / static_cast<int>(sizeof(Word));
  struct alignas(kBytes) Words {
    Word w[kWords];
  } words;

  __device__ void load(const T* from) { words = *reinterpret_cast<const Words*>(from); }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words.w[i] = 0;
  }
  __device__ void floats(float (&values)[N]) const {
    Pack<T, N> pack;
    __builtin_memcpy(&pack, &words, sizeof(pack));
    unpack<N>(pack, values);
  }
};

/// kColumns neighbouring positions of a row.
template <class T, int N, int kColumns>
struct RawRow {
  RawPack<T, N> at[kColumns];

  static constexpr unsigned kAll = (1u << kColumns) - 1;

  /// Position i is read where bit i of `inside` is set, else it is zero.
  __device__ void load(const T* from, unsigned inside, int channels) {
    if (inside == kAll) {  // away from the edges: no predicates
#pragma unroll
      for (int i = 0; i < kColumns; ++i) at[i].load(from + i * channels);
      return;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      at[i].clear();
      if (inside >> i & 1u) at[i].load(from + i * channels);
    }
  }
  __device__ void floats(float (&values)[kColumns][N]) const {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) at[i].floats(values[i]);
  }
};

/// Asks the L2 cache for positions [kFirst, kFirst + kCount) of a row, where their bit of `inside` is set: what a
/// thread loads next is then in the cache, even if its registers have no room for it yet.
template <int kFirst, int kCount, class T>
__device__ inline void prefetch_row(const T* from, unsigned inside, int channels) {
#pragma unroll
  for (int i = kFirst; i < kFirst + kCount; ++i)
    if (inside >> i & 1u) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i * channels));
}

/// Zeros where bit t of `inside` is not set.
template <int kColumns, int N>
__device__ inline void clear_outside(unsigned inside, float (&values)[kColumns][N]) {
  if (inside == (1u << kColumns) - 1) return;
#pragma unroll
  for (int t = 0; t < kColumns; ++t)
#pragma unroll
    for (int n = 0; n < N; ++n) values[t][n] = inside >> t & 1u ? values[t][n] : 0.0f;
}

/// Bit i: column first + i lies in [0, width).
template <int kColumns>
__device__ inline unsigned columns_inside(int first, int width) {
  unsigned inside = 0;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) inside |= (first + i >= 0 && first + i < width ? 1u : 0u) << i;
  return inside;
}

/// Values as they are in memory.
template <class T, int N>
struct PlainValues {
  template <int kData>
  __device__ void floats(const RawRow<T, N, kData>& row, unsigned, float (&values)[kData][N]) const {
    row.floats(values);
  }
};

/// A strip's rows of data, one after another from the top; the next is on its way while one is used, and kAhead more on
/// their way to the L2 cache, which the strip's kOwn first columns are asked for. `Values` makes floats of what lies in
/// memory.
template <class T, int N, int kData, class Values, int kOwn, int kAhead>
struct StripRows {
  const T* from;     ///< the next row's first position
  int row, end_row;  ///< the next row; rows from end_row on are not wanted
  unsigned inside;   ///< columns that exist
  int channels;
  std::int64_t step;  ///< elements of a row of the image
  unsigned here;      ///< positions of `next` that exist
  RawRow<T, N, kData> next;

  __device__ void fetch() {
    here = exists() ? inside : 0u;
    next.load(from, here, channels);
    if constexpr (kAhead > 0) prefetch(kAhead);
  }
  /// Before the first fetch.
  __device__ void begin() const {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) prefetch(k);
  }
  __device__ void prefetch(int k) const {
    if (row + k >= 0 && row + k < end_row) prefetch_row<0, kOwn>(from + k * step, inside, channels);
  }
  /// Whether the next row is one of the image's.
  __device__ bool exists() const { return row >= 0 && row < end_row; }
  /// Copies out the row that has arrived, and starts loading the next.
  __device__ void load(const Values& of, float (&values)[kData][N]) {
    of.floats(next, here, values);
    skip();
  }
  __device__ void skip() {
    ++row;
    from += step;
    fetch();
  }
};

/// The rows of x under a task's rows of y.
template <class Values, int kColumns, int kStride, int kAhead, class T, int N, int kKernel = 3>
__device__ inline auto rows_under(const T* x, const Strips& g, const StripTask& task, int c) {
  constexpr int kData = (kColumns - 1) * kStride + kKernel;
  using Rows = StripRows<T, N, kData, Values, kColumns * kStride, kAhead>;
  const int row = task.first_row * kStride - g.pad_top, column = task.first_column * kStride - g.pad_left;
  const std::int64_t step = static_cast<std::int64_t>(g.in_w) * g.channels;
  return Rows{.from = x + (task.image * g.in_h + row) * step + static_cast<std::int64_t>(column) * g.channels + c,
              .row = row,
              .end_row = min(g.in_h, (task.end_row - 1) * kStride - g.pad_top + kKernel),
              .inside = columns_inside<kData>(column, g.in_w),
              .channels = g.channels,
              .step = step,
              .here = 0,
              .next = {}};
}

template <int kColumns, int N>
__device__ inline void set_zero(float (&values)[kColumns][N]) {
#pragma unroll
  for (int t = 0; t < kColumns; ++t)
#pragma unroll
    for (int n = 0; n < N; ++n) values[t][n] = 0;
}

/// Where a task's rows of y go.
template <class T>
struct StripWriter {
  T* to;
  std::int64_t step;
  int columns_left, channels;

  __device__ StripWriter(T* y, const Strips& g, const StripTask& task, int c)
      : step(static_cast<std::int64_t>(g.out_w) * g.channels),
        columns_left(g.out_w - task.first_column),
        channels(g.channels) {
    to = y + (task.image * g.out_h + task.first_row) * step + static_cast<std::int64_t>(task.first_column) * channels +
         c;
  }
  template <int kColumns, int N>
  __device__ void write(const float (&values)[kColumns][N]) {
#pragma unroll
    for (int t = 0; t < kColumns; ++t)
      if (t < columns_left) repack<N>(values[t], to + t * channels);
    to += step;
  }
};

/// The nine weights of N channels; `backwards` turns the kernel around.
template <class T, int N>
__device__ inline void load_taps(const T* weights, int channels, int c, bool backwards, float (&taps)[9][N]) {
#pragma unroll
  for (int tap = 0; tap < 9; ++tap)
    unpack<N>(weights + static_cast<std::int64_t>(backwards ? 8 - tap : tap) * channels + c, taps[tap]);
}

/// sum[t] += row[kStride·t + kw] · taps[3·kh + kw].
template <int kStride, int kColumns, int kData, int N>
__device__ inline void add_tap_row(const float (&row)[kData][N], const float (&taps)[9][N], int kh,
                                   float (&sum)[kColumns][N]) {
#pragma unroll
  for (int t = 0; t < kColumns; ++t) {
#pragma unroll
    for (int kw = 0; kw < 3; ++kw) {
#pragma unroll
      for (int n = 0; n < N; ++n) sum[t][n] += row[t * kStride + kw][n] * taps[3 * kh + kw][n];
    }
  }
}

/// Blocks of tasks: threadIdx.x over packs of channels, threadIdx.y over tasks; blockIdx.x runs over the columns of
/// blocks that share their tasks first.
struct StripGrid {
  dim3 block;
  unsigned blocks;
  FastDivide by_columns;
  std::uint32_t columns;
};

/// A grid of `tasks` tasks, or of blocks that run `tasks_each` of them in turn; at most `most_lanes` threads share one.
inline StripGrid strip_grid(std::int64_t packs, std::int64_t tasks, std::int64_t tasks_each = 0,
                            std::int64_t most_lanes = kStripLanes) {
  const std::int64_t lanes = strip_lanes(packs, most_lanes), at_once = kStripThreads / lanes;
  const unsigned columns = blocks_for(packs, lanes);
  return {dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(at_once)),
          columns * blocks_for(tasks, tasks_each > 0 ? tasks_each : at_once), FastDivide(columns), columns};
}

}  // namespace bantam::kernels::cuda
