// Matrix products on the CPU: single-threaded products over parts of C; half types go through widened tiles.
#include "bantam/kernels/matmul/matmul.h"

#include <algorithm>
#include <cstring>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/elementwise/epilogue.h"
#include "bantam/kernels/matmul/cpu/gemm.h"
#include "bantam/kernels/matmul/matmul_plan.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kTile = MatmulPlan::kTile;

struct Operands {
  const MatmulShape& shape;
  DType dtype;
  const void* a;
  const void* b;
  const MatmulOutput& c;

  /// The addends of the block of C at (row, column), for a C of float32.
  GemmAddends addends(std::int64_t row, std::int64_t column) const {
    const auto *bias = static_cast<const float*>(c.bias), *residual = static_cast<const float*>(c.residual);
    return {bias != nullptr ? bias + column : nullptr,
            residual != nullptr ? residual + row * shape.n + column : nullptr, shape.n};
  }
};

/// A part of the product: a block of C, and a split of the sum.
struct Block {
  std::int64_t row, rows, column, columns, k, depth;
};

Block block_of(const MatmulShape& s, const MatmulPlan& plan, std::int64_t part) {
  const std::int64_t split = part % plan.depth_parts;
  const std::int64_t column = part / plan.depth_parts % plan.column_parts * plan.columns;
  const std::int64_t row = part / plan.depth_parts / plan.column_parts * plan.rows;
  const std::int64_t k = split * plan.depth;
  return {row, std::min(plan.rows, s.m - row), column, std::min(plan.columns, s.n - column),
          k,   std::min(plan.depth, s.k - k)};
}

/// A rows × columns block of op(M) at (row, column), widened and packed in M's own storage order.
MatrixView widen_block(DType dtype, const void* stored, std::int64_t stride, bool transposed, const Block& where,
                       float* to) {
  const std::int64_t outer = transposed ? where.column : where.row, outers = transposed ? where.columns : where.rows;
  const std::int64_t inner = transposed ? where.row : where.column, inners = transposed ? where.rows : where.columns;
  for (std::int64_t i = 0; i < outers; ++i) {
    widen(dtype, element(stored, dtype, (outer + i) * stride + inner), to + i * inners, inners);
  }
  return {to, inners, transposed};
}

/// One tile of C over the whole depth of `block`, from half operands into floats.
void multiply_tile(const Operands& in, const Block& tile, float* slot, float* c, std::int64_t c_stride, bool accumulate,
                   const GemmAddends& addends = {}) {
  const MatmulShape& s = in.shape;
  WorkspaceCutter cutter({slot, 0});
  const std::int64_t k_step = std::min(kTile, tile.depth);
  float* a_tile = cutter.cut<float>(static_cast<std::size_t>(tile.rows * k_step) * 4);
  float* b_tile = cutter.cut<float>(static_cast<std::size_t>(k_step * tile.columns) * 4);
  for (std::int64_t done = 0; done < tile.depth; done += k_step) {
    const std::int64_t k = tile.k + done, depth = std::min(k_step, tile.depth - done);
    const MatrixView a = widen_block(in.dtype, in.a, s.transpose_a ? s.m : s.k, s.transpose_a,
                                     {tile.row, tile.rows, k, depth, 0, 0}, a_tile);
    const MatrixView b = widen_block(in.dtype, in.b, s.transpose_b ? s.k : s.n, s.transpose_b,
                                     {k, depth, tile.column, tile.columns, 0, 0}, b_tile);
    gemm({tile.rows, tile.columns, depth}, a, b, c, c_stride, accumulate || done > 0,
         done == 0 ? addends : GemmAddends{});
  }
}

/// Adds `count` values of a vector of C's type to floats.
void add_values(DType dtype, const void* from, float* values, std::int64_t count) {
  dispatch_floating(dtype, [&](auto tag) {
    const auto* more = static_cast<const typename decltype(tag)::type*>(from);
    for (std::int64_t i = 0; i < count; ++i) values[i] += static_cast<float>(more[i]);
  });
}

/// Stores floats into C from element `at` on: with what is to be added, rounded to its type.
void store_values(const Operands& in, float* values, std::int64_t at, std::int64_t count) {
  const DType dtype = in.c.dtype;
  void* c = element(in.c.data, dtype, at);
  for (std::int64_t done = 0, row_end = 0; in.c.bias != nullptr && done < count; done = row_end) {
    const std::int64_t column = (at + done) % in.shape.n;
    row_end = std::min(count, done + in.shape.n - column);
    add_values(dtype, element(in.c.bias, dtype, column), values + done, row_end - done);
  }
  if (in.c.residual != nullptr) add_values(dtype, element(in.c.residual, dtype, at), values, count);
  if (in.c.accumulate) add_values(dtype, c, values, count);
  narrow(dtype, values, c, count);
}

/// A block of C from half operands, tile by tile. Writes the sums to `sums` (row length n) where it is not null, else
/// to C.
void multiply_half_block(const Operands& in, const Block& block, char* slot_bytes, float* sums) {
  const std::int64_t n = in.shape.n;
  float* slot = reinterpret_cast<float*>(slot_bytes);
  const std::int64_t tile_rows = std::min(kTile, block.rows), tile_columns = std::min(kTile, block.columns);
  const std::int64_t k_step = std::min(kTile, block.depth);
  float* result = reinterpret_cast<float*>(slot_bytes + aligned_bytes(tile_rows * k_step * 4) +
                                           aligned_bytes(k_step * tile_columns * 4));
  for (std::int64_t i = 0; i < block.rows; i += tile_rows) {
    for (std::int64_t j = 0; j < block.columns; j += tile_columns) {
      const Block tile{block.row + i,    std::min(tile_rows, block.rows - i),
                       block.column + j, std::min(tile_columns, block.columns - j),
                       block.k,          block.depth};
      const std::int64_t at = tile.row * n + tile.column;
      if (sums != nullptr) {
        multiply_tile(in, tile, slot, sums + at, n, false);
      } else if (in.c.dtype == DType::float32) {
        multiply_tile(in, tile, slot, static_cast<float*>(in.c.data) + at, n, in.c.accumulate,
                      in.addends(tile.row, tile.column));
      } else {
        multiply_tile(in, tile, slot, result, tile.columns, false);
        for (std::int64_t r = 0; r < tile.rows; ++r)
          store_values(in, result + r * tile.columns, at + r * n, tile.columns);
      }
    }
  }
}

void multiply_float_block(const Operands& in, const Block& block, float* sums) {
  const MatmulShape& s = in.shape;
  const MatrixView a{static_cast<const float*>(in.a), s.transpose_a ? s.m : s.k, s.transpose_a};
  const MatrixView b{static_cast<const float*>(in.b), s.transpose_b ? s.k : s.n, s.transpose_b};
  float* c = (sums != nullptr ? sums : static_cast<float*>(in.c.data)) + block.row * s.n + block.column;
  gemm({block.rows, block.columns, block.depth}, a.at(block.row, block.k), b.at(block.k, block.column), c, s.n,
       sums == nullptr && in.c.accumulate, sums == nullptr ? in.addends(block.row, block.column) : GemmAddends{});
}

/// The same cut with fewer, taller parts where a few threads compute all: each part packs its columns of B anew. Where
/// C is cut across rows changes no bit; parts with tiles of their own in the workspace stay as planned.
MatmulPlan for_threads(MatmulPlan plan, const MatmulShape& shape, int threads) {
  constexpr std::int64_t kPartsOfThread = 4;
  const std::int64_t others = plan.column_parts * plan.depth_parts;
  const std::int64_t enough = std::max<std::int64_t>(1, ceil_div(kPartsOfThread * threads, others));
  if (plan.slot_bytes > 0 || plan.row_parts <= enough) return plan;
  plan.rows = whole(ceil_div(shape.m, enough), MatmulPlan::kRowStep);
  plan.row_parts = ceil_div(shape.m, plan.rows);
  return plan;
}

/// C from the partial sums, added in the order of the splits.
void add_partials(const Exec& exec, const Operands& in, float* partials, std::int64_t splits) {
  constexpr std::int64_t kGrain = 8192;
  const std::int64_t elements = in.shape.m * in.shape.n;
  parallel_ranges(elements, kGrain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t split = 1; split < splits; ++split) {
      const float* partial = partials + split * elements;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) partials[i] += partial[i];
    }
    store_values(in, partials + begin, begin, end - begin);
  });
}

}  // namespace

void matmul(const Exec& exec, const MatmulShape& shape, DType dtype, const void* a, const void* b,
            const MatmulOutput& c, Workspace workspace) {
  check_matmul_types(dtype, c.dtype);
  check_matmul_output(c, 1);
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) {
    if (!c.accumulate) std::memset(c.data, 0, static_cast<std::size_t>(shape.m * shape.n) * size_of(c.dtype));
    return epilogue_forward(exec, shape.m, shape.n, c.dtype, {.bias = c.bias, .residual = c.residual}, c.data);
  }
  const MatmulPlan plan = plan_matmul(shape, dtype, c.dtype);
  require_workspace(workspace, plan.workspace_bytes(), "matmul");
  const MatmulPlan cut = for_threads(plan, shape, exec.threads);
  const Operands in{shape, dtype, a, b, c};
  float* partials = static_cast<float*>(workspace.data);
  char* slots = static_cast<char*>(workspace.data) + plan.partial_bytes;
  parallel_parts(cut.parts(), exec.threads, [&](std::int64_t part) {
    const Block block = block_of(shape, cut, part);
    float* sums = plan.depth_parts > 1 ? partials + part % plan.depth_parts * shape.m * shape.n : nullptr;
    if (dtype == DType::float32) {
      multiply_float_block(in, block, sums);
    } else {
      multiply_half_block(in, block, slots + static_cast<std::size_t>(part) * plan.slot_bytes, sums);
    }
  });
  if (plan.depth_parts > 1) add_partials(exec, in, partials, plan.depth_parts);
}

void batched_matmul(const Exec& exec, const MatmulShape& shape, const MatmulBatch& batch, DType dtype, const void* a,
                    const void* b, const MatmulOutput& c, Workspace workspace) {
  check_matmul_types(dtype, c.dtype);
  check_matmul_batch(batch, dtype, c.dtype);
  check_matmul_output(c, batch.count);
  for (std::int64_t i = 0; i < batch.count; ++i) {
    matmul(exec, shape, dtype, element(a, dtype, i * batch.a_stride), element(b, dtype, i * batch.b_stride),
           {.data = element(c.data, c.dtype, i * batch.c_stride),
            .dtype = c.dtype,
            .accumulate = c.accumulate,
            .bias = c.bias,
            .residual = c.residual},
           workspace);
  }
}

}  // namespace bantam::kernels::cpu
