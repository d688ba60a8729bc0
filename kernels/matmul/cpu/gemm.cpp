// Blocked matrix product on one thread: B packed into panels that stay in the second-level cache, and tiles of C in
// registers, by the widest vectors that the processor has.
// Source of the blocking: Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication".
#include "bantam/kernels/matmul/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <utility>

#include "bantam/kernels/common/cpu/instruction_set.h"
#include "bantam/kernels/common/cpu/thread_scratch.h"
#include "bantam/kernels/matmul/cpu/gemm_tile.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kDepthBlock = 256;   // rows of B in a block
constexpr std::int64_t kColumnBlock = 192;  // columns of B in a block: with kDepthBlock 192 KiB
constexpr int kMaxRows = 12;                // rows of the tallest tile
constexpr std::int64_t kRowBlock = 192;     // rows of an A that is packed, at once

/// Defines an instruction set's kernels: tiles of up to `kRows` rows and 1 or 2 vectors of columns, and packing.
/// BANTAM_GEMM_TARGET(name, vector bytes, rows, attribute)
#define BANTAM_GEMM_TARGET(Name, Bytes, Rows, Attribute)                                                        \
  struct Name {                                                                                                 \
    using Vector = float __attribute__((vector_size(Bytes)));                                                   \
    static constexpr int kRows = Rows;                                                                          \
    template <int R, int V, bool Packed>                                                                        \
    Attribute static void tile(const GemmTile& tile) {                                                          \
      multiply_tile<Vector, R, V, Packed>(tile);                                                                \
    }                                                                                                           \
    Attribute static void pack_b(const float* from, std::int64_t stride, bool transposed, std::int64_t depth,   \
                                 std::int64_t columns, float* to) {                                             \
      pack_block<Vector>(from, stride, transposed, depth, columns, to);                                         \
    }                                                                                                           \
    Attribute static void pack_a(const float* from, std::int64_t stride, std::int64_t depth, std::int64_t rows, \
                                 std::int64_t tile, float* to) {                                                \
      pack_rows<Rows>(from, stride, depth, rows, tile, to);                                                     \
    }                                                                                                           \
  }

#if defined(__x86_64__)
BANTAM_GEMM_TARGET(Avx512, 64, 12, [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]]);
BANTAM_GEMM_TARGET(Avx2, 32, 6, [[gnu::target("avx2,fma")]]);
#endif
BANTAM_GEMM_TARGET(Plain, 16, 6, );
#undef BANTAM_GEMM_TARGET

using TileFunction = void (*)(const GemmTile&);

/// The tiles of 1 … kRows rows.
template <class Target, int V, bool Packed, int... R>
constexpr std::array<TileFunction, Target::kRows> tiles(std::integer_sequence<int, R...>) {
  return {&Target::template tile<R + 1, V, Packed>...};
}
/// One block of B in panels, and where it lies in the product.
struct PackedB {
  const float* panels;
  std::int64_t row, depth, column, columns;
};

template <class Target>
class Multiplier {
 public:
  Multiplier(const GemmSize& size, MatrixView a, MatrixView b, float* c, std::int64_t c_row, bool accumulate,
             const GemmAddends& addends)
      : size_(size), a_(a), b_(b), c_(c), c_row_(c_row), accumulate_(accumulate), addends_(addends) {}

  void run() const {
    struct PackedBlocks {};
    constexpr std::size_t kPanelFloats = kDepthBlock * kColumnBlock;
    constexpr std::size_t kRowFloats = kRowBlock / Target::kRows * kTileFloats;
    float* const panels = thread_scratch<PackedBlocks, kPanelFloats + kRowFloats>();
    float* const packed_rows = panels + kPanelFloats;
    for (std::int64_t p = 0; p < size_.k; p += kDepthBlock) {
      for (std::int64_t j = 0; j < size_.n; j += kColumnBlock) {
        const PackedB block{panels, p, std::min(kDepthBlock, size_.k - p), j, std::min(kColumnBlock, size_.n - j)};
        Target::pack_b(b_.at(p, j).data, b_.stride, b_.transposed, block.depth, block.columns, panels);
        for (std::int64_t i = 0; i < size_.m; i += kRowBlock) {
          multiply_row_block(block, i, std::min(kRowBlock, size_.m - i), packed_rows);
        }
      }
    }
  }

 private:
  static constexpr std::int64_t kLanes = sizeof(typename Target::Vector) / sizeof(float);
  static_assert(kColumnBlock % (2 * kLanes) == 0 && Target::kRows <= kMaxRows && kRowBlock % Target::kRows == 0);
  /// From one packed tile of A to the next: an odd number of cache lines, so that they spread over a cache's sets.
  static constexpr std::int64_t kTileFloats = kDepthBlock * Target::kRows + 16;
  using AllRows = std::make_integer_sequence<int, Target::kRows>;
  /// By whether A is packed, the vectors of columns, and the rows.
  static constexpr std::array<TileFunction, Target::kRows> kTiles[2][2] = {
      {tiles<Target, 1, false>(AllRows()), tiles<Target, 2, false>(AllRows())},
      {tiles<Target, 1, true>(AllRows()), tiles<Target, 2, true>(AllRows())}};

  /// Rows of C from `row` on, times all of the block. `packed_rows` has room for kRowBlock rows of A.
  void multiply_row_block(const PackedB& block, std::int64_t row, std::int64_t rows, float* packed_rows) const {
    const MatrixView a = a_.at(row, block.row);
    if (a.transposed) Target::pack_a(a.data, a.stride, block.depth, rows, kTileFloats, packed_rows);
    for (std::int64_t i = 0; i < rows; i += Target::kRows) {
      const float* tile_rows = a.transposed ? packed_rows + i / Target::kRows * kTileFloats : a.at(i, 0).data;
      multiply_rows(block, tile_rows, row + i, static_cast<int>(std::min<std::int64_t>(Target::kRows, rows - i)));
    }
  }

  /// One tile's rows of C from `row` on; `a`: those rows of A, packed where A is stored transposed.
  void multiply_rows(const PackedB& block, const float* a, std::int64_t row, int rows) const {
    const bool adds_to_c = accumulate_ || block.row > 0, is_first = block.row == 0;
    GemmTile tile{a, a_.stride, nullptr, block.depth, nullptr, c_row_};
    for (std::int64_t j = 0; j < block.columns;) {
      const std::int64_t width = panel_width<typename Target::Vector>(block.columns - j),
                         columns = std::min(width, block.columns - j);
      const TileFunction multiply = kTiles[a_.transposed][width > kLanes][static_cast<std::size_t>(rows - 1)];
      tile.b = block.panels + j * block.depth;
      tile.c = c_ + row * c_row_ + block.column + j;
      if (adds_to_c) {
        tile.added = tile.c;
        tile.added_row = c_row_;
      } else if (addends_.residual != nullptr) {
        tile.added = addends_.residual + row * addends_.residual_stride + block.column + j;
        tile.added_row = addends_.residual_stride;
      }
      tile.bias = is_first && addends_.bias != nullptr ? addends_.bias + block.column + j : nullptr;
      if (columns == width) {
        multiply(tile);
      } else {
        multiply_edge(tile, multiply, rows, columns, width);
      }
      j += width;
    }
  }

  /// A tile whose last columns are not C's.
  static void multiply_edge(GemmTile tile, TileFunction multiply, int rows, std::int64_t columns, std::int64_t width) {
    alignas(64) float values[kMaxRows * 2 * kLanes];
    float bias[2 * kLanes] = {};
    const GemmTile whole = tile;
    tile.c = values, tile.c_row = width, tile.added = nullptr;
    if (whole.bias != nullptr) {
      std::copy_n(whole.bias, columns, bias);
      tile.bias = bias;
    }
    multiply(tile);
    for (int r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const float value = values[r * width + j];
        whole.c[r * whole.c_row + j] = whole.added != nullptr ? whole.added[r * whole.added_row + j] + value : value;
      }
    }
  }

  GemmSize size_;
  MatrixView a_, b_;
  float* c_;
  std::int64_t c_row_;
  bool accumulate_;
  GemmAddends addends_;
};

using Gemm = void(const GemmSize&, MatrixView, MatrixView, float*, std::int64_t, bool, const GemmAddends&);

template <class Target>
void multiply(const GemmSize& size, MatrixView a, MatrixView b, float* c, std::int64_t c_stride, bool accumulate,
              const GemmAddends& addends) {
  Multiplier<Target>(size, a, b, c, c_stride, accumulate, addends).run();
}

Gemm* fastest_gemm() {
#if defined(__x86_64__)
  if (has_avx512()) return &multiply<Avx512>;
  if (has_avx2()) return &multiply<Avx2>;
#endif
  return &multiply<Plain>;
}

}  // namespace

void gemm(const GemmSize& size, MatrixView a, MatrixView b, float* c, std::int64_t c_stride, bool accumulate,
          const GemmAddends& addends) {
  if (size.m == 0 || size.n == 0) return;
  if (size.k == 0) {
    for (std::int64_t i = 0; i < size.m; ++i) {
      for (std::int64_t j = 0; j < size.n; ++j) {
        float value = accumulate ? c[i * c_stride + j] : 0.0f;
        if (addends.bias != nullptr) value += addends.bias[j];
        if (addends.residual != nullptr) value += addends.residual[i * addends.residual_stride + j];
        c[i * c_stride + j] = value;
      }
    }
    return;
  }
  static Gemm* const run = fastest_gemm();
  run(size, a, b, c, c_stride, accumulate, addends);
}

}  // namespace bantam::kernels::cpu
