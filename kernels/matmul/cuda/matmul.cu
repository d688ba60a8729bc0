// Matrix products on a GPU: cuBLASLt, and a tiled kernel of our own for problems that it does not support.
#include <algorithm>
#include <cstddef>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/gemm.h"
#include "bantam/kernels/common/cuda/libraries.h"
#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/elementwise/epilogue.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/kernels/matmul/workspace_rules.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kTile = 64;      // edge of a block's tile of C
constexpr int kDepth = 16;     // of the sum, at a time in shared memory
constexpr int kThreads = 256;  // each has 4 × 4 elements of C
constexpr int kEach = 4;

/// The part of a GemmProblem that the kernel needs.
struct Tiling {
  std::int64_t m, n, k, a_stride, b_stride, c_stride, column_tiles;
  bool transpose_a, transpose_b, accumulate;
};

/// A result with its addends: a bias (n) and a residual like C, or null.
template <class Out>
struct Result {
  Out* c;
  const Out *bias, *residual;

  explicit Result(const GemmOperands& in)
      : c(static_cast<Out*>(in.c)),
        bias(static_cast<const Out*>(in.bias)),
        residual(static_cast<const Out*>(in.residual)) {}
  /// Stores a sum at element `at` of C, in column `column`.
  __device__ void store(std::int64_t at, std::int64_t column, float sum, bool accumulate) const {
    if (accumulate) sum = to_float(c[at]) + sum;
    if (residual != nullptr) sum += to_float(residual[at]);
    if (bias != nullptr) sum += to_float(bias[column]);
    c[at] = from_float<Out>(sum);
  }
};

/// Copies a kDepth × kTile tile of an operand to shared memory as floats. `edge` runs along C's rows (A) or columns
/// (B); element (edge, depth) is data[edge · edge_step + depth · depth_step]. Neighbouring threads read neighbouring
/// memory.
template <class T>
__device__ void load_tile(const T* __restrict__ data, std::int64_t edge0, std::int64_t edges, std::int64_t depth0,
                          std::int64_t depths, std::int64_t edge_step, std::int64_t depth_step,
                          float (*tile)[kTile + 4]) {
  const bool depth_first = depth_step == 1;
  for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
    const int edge = depth_first ? i / kDepth : i % kTile;
    const int depth = depth_first ? i % kDepth : i / kTile;
    const bool inside = edge0 + edge < edges && depth0 + depth < depths;
    tile[depth][edge] = inside ? to_float(data[(edge0 + edge) * edge_step + (depth0 + depth) * depth_step]) : 0.0f;
  }
}

/// C tile by tile, float32 sums in the order of k: deterministic.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    tiled_gemm(const T* __restrict__ a, const T* __restrict__ b, Result<Out> result, Tiling t) {
  __shared__ float a_tile[kDepth][kTile + 4];
  __shared__ float b_tile[kDepth][kTile + 4];
  const std::int64_t row0 = blockIdx.x / t.column_tiles * kTile, column0 = blockIdx.x % t.column_tiles * kTile;
  const int my_row = threadIdx.x / 16, my_column = threadIdx.x % 16;
  float sums[kEach][kEach] = {};
  for (std::int64_t k0 = 0; k0 < t.k; k0 += kDepth) {
    load_tile(a, row0, t.m, k0, t.k, t.transpose_a ? 1 : t.a_stride, t.transpose_a ? t.a_stride : 1, a_tile);
    load_tile(b, column0, t.n, k0, t.k, t.transpose_b ? t.b_stride : 1, t.transpose_b ? 1 : t.b_stride, b_tile);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      float left[kEach], right[kEach];
      for (int i = 0; i < kEach; ++i) left[i] = a_tile[k][my_row + 16 * i];
      for (int j = 0; j < kEach; ++j) right[j] = b_tile[k][my_column + 16 * j];
      for (int i = 0; i < kEach; ++i) {
        for (int j = 0; j < kEach; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      const std::int64_t row = row0 + my_row + 16 * i, column = column0 + my_column + 16 * j;
      if (row >= t.m || column >= t.n) continue;
      result.store(row * t.c_stride + column, column, sums[i][j], t.accumulate);
    }
  }
}

template <class T, class Out>
void launch_tiled(const Exec& exec, const GemmProblem& p, const GemmOperands& in) {
  const std::int64_t row_tiles = (p.m + kTile - 1) / kTile, column_tiles = (p.n + kTile - 1) / kTile;
  const std::int64_t blocks = row_tiles * column_tiles;
  if (blocks > 0x7fffffff) throw ShapeError("matmul: the result is too large for one launch");
  const Tiling tiling{p.m,        p.n,          p.k,           p.a_stride,    p.b_stride,
                      p.c_stride, column_tiles, p.transpose_a, p.transpose_b, in.accumulate};
  tiled_gemm<T, Out><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(exec)>>>(
      static_cast<const T*>(in.a), static_cast<const T*>(in.b), Result<Out>(in), tiling);
  check_launch("tiled_gemm");
}

}  // namespace

namespace {

/// A long sum cut into `full` parts of `depth` and a shorter last one.
struct SplitSum {
  std::int64_t full = 0, depth = 0, rest = 0;
  std::int64_t parts() const { return full + (rest > 0 ? 1 : 0); }
};

/// No parts (full = 0) unless the sum is long and the result so small that its tiles would keep most of a GPU idle.
/// Parts are multiples of 64 deep (operands stay aligned), at least 1024, enough for about 128 tiles, within half of
/// the workspace.
SplitSum split_sum(const GemmProblem& p) {
  constexpr std::int64_t kLong = 4096, kTiles = 128, kShortest = 1024, kAligned = 64;
  const std::int64_t tiles = ((p.m + kTile - 1) / kTile) * ((p.n + kTile - 1) / kTile);
  const std::int64_t fitting =
      static_cast<std::int64_t>(p.workspace_limit) / 2 / (p.m * p.n * 4) - 1;  // one for the rest
  const std::int64_t wanted = std::min({kTiles / tiles, p.k / kShortest, fitting});
  if (p.k < kLong || p.batch != 1 || wanted < 2) return {};
  // From 64 x 64 on cuBLASLt's own parts are faster on tensor cores: measured at ResNet-50's shapes, by 1 to 28 %.
  if (is_half(p.dtype) && p.m >= kTile && p.n >= kTile) return {};
  SplitSum split;
  split.depth = ((p.k + wanted - 1) / wanted + kAligned - 1) / kAligned * kAligned;
  split.full = p.k / split.depth;
  split.rest = p.k % split.depth;
  return split;
}

/// c = Σ of the parts in order and the addends, on top of c where `accumulate`. Parts (parts, m, n) float32.
template <class Out>
__global__ void __launch_bounds__(kThreads)
    add_product_parts(const float* __restrict__ partials, std::int64_t parts, std::int64_t m, std::int64_t n,
                      Result<Out> result, std::int64_t c_stride, bool accumulate) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= m * n) return;
  float sum = 0.0f;
#pragma unroll 8
  for (std::int64_t part = 0; part < parts; ++part) sum += partials[part * m * n + i];  // eight loads under way
  result.store(i / n * c_stride + i % n, i % n, sum, accumulate);
}

/// One product, or a batch of them, without cutting.
void plain_gemm(const Exec& exec, const GemmProblem& problem, const GemmOperands& operands, Workspace workspace) {
  // cuBLASLt supports no empty sums; our kernel stores their zeros.
  CublasLt& library = Libraries::of(exec).cublaslt();
  if (problem.k > 0 && library.matmul(problem, operands, workspace, stream_of(exec))) return;
  if (problem.k > 0 && problem.adds_bias) {  // it may have a kernel without
    GemmProblem unbiased = problem;
    unbiased.adds_bias = false;
    if (library.matmul(unbiased, operands, workspace, stream_of(exec)))
      return epilogue_forward(exec, problem.m, problem.n, problem.out_dtype, {.bias = operands.bias}, operands.c);
  }
  dispatch_floating(problem.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t i = 0; i < problem.batch; ++i) {
      const T* a = static_cast<const T*>(operands.a) + i * problem.a_batch_stride;
      const T* b = static_cast<const T*>(operands.b) + i * problem.b_batch_stride;
      const std::int64_t c = i * problem.c_batch_stride;
      GemmOperands one{a, b, nullptr, operands.accumulate, operands.bias, operands.residual};
      if (problem.out_dtype == DType::float32) {
        one.c = static_cast<float*>(operands.c) + c;
        launch_tiled<T, float>(exec, problem, one);
      } else {
        one.c = static_cast<T*>(operands.c) + c;
        launch_tiled<T, T>(exec, problem, one);
      }
    }
  });
}

/// The parts as a batch (and the rest as one more product) into the workspace, then their sum.
void split_gemm(const Exec& exec, const GemmProblem& p, const GemmOperands& operands, Workspace workspace,
                const SplitSum& split) {
  const std::size_t partial_bytes = aligned_bytes(split.parts() * p.m * p.n * 4);
  auto* partials = static_cast<float*>(workspace.data);
  const Workspace left{static_cast<std::byte*>(workspace.data) + partial_bytes, workspace.bytes - partial_bytes};
  // Where depth k of each operand begins, in elements.
  const std::int64_t a_step = p.transpose_a ? p.a_stride : 1, b_step = p.transpose_b ? 1 : p.b_stride;
  GemmProblem part = p;
  part.out_dtype = DType::float32;
  part.c_stride = p.n;
  part.adds_bias = false;
  part.workspace_limit = p.workspace_limit - partial_bytes;
  part.k = split.depth;
  part.batch = split.full;
  part.a_batch_stride = split.depth * a_step;
  part.b_batch_stride = split.depth * b_step;
  part.c_batch_stride = p.m * p.n;
  plain_gemm(exec, part, {operands.a, operands.b, partials, false}, left);
  if (split.rest > 0) {
    const std::int64_t begin = split.full * split.depth, size = static_cast<std::int64_t>(size_of(p.dtype));
    part.k = split.rest;
    part.batch = 1;
    part.a_batch_stride = part.b_batch_stride = part.c_batch_stride = 0;
    plain_gemm(
        exec, part,
        {static_cast<const std::byte*>(operands.a) + begin * a_step * size,
         static_cast<const std::byte*>(operands.b) + begin * b_step * size, partials + split.full * p.m * p.n, false},
        left);
  }
  dispatch_floating(p.out_dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    const auto blocks = static_cast<unsigned>((p.m * p.n + kThreads - 1) / kThreads);
    add_product_parts<Out><<<blocks, kThreads, 0, stream_of(exec)>>>(
        partials, split.parts(), p.m, p.n, Result<Out>(operands), p.c_stride, operands.accumulate);
    check_launch("add_product_parts");
  });
}

}  // namespace

void gemm(const Exec& exec, const GemmProblem& problem, const GemmOperands& operands, Workspace workspace) {
  if (problem.m == 0 || problem.n == 0) return;
  const SplitSum split = split_sum(problem);
  if (split.full == 0) {
    plain_gemm(exec, problem, operands, workspace);
  } else {
    split_gemm(exec, problem, operands, workspace, split);
  }
}

bool gemm_with_epilogue(const Exec& exec, const GemmProblem& problem, const GemmOperands& operands,
                        Workspace workspace) {
  if (problem.m == 0 || problem.n == 0 || problem.k == 0 || split_sum(problem).full > 0) return false;
  return Libraries::of(exec).cublaslt().matmul(problem, operands, workspace, stream_of(exec));
}

namespace {

/// Rows lie one after another.
GemmProblem problem_of(const MatmulShape& s, DType dtype, DType out_dtype) {
  return {.m = s.m,
          .n = s.n,
          .k = s.k,
          .transpose_a = s.transpose_a,
          .transpose_b = s.transpose_b,
          .a_stride = s.transpose_a ? s.m : s.k,
          .b_stride = s.transpose_b ? s.k : s.n,
          .c_stride = s.n,
          .dtype = dtype,
          .out_dtype = out_dtype,
          .workspace_limit = matmul_workspace_rule(s)};
}

}  // namespace

void matmul(const Exec& exec, const MatmulShape& s, DType dtype, const void* a, const void* b, const MatmulOutput& c,
            Workspace workspace) {
  batched_matmul(exec, s, {}, dtype, a, b, c, workspace);
}

void batched_matmul(const Exec& exec, const MatmulShape& s, const MatmulBatch& batch, DType dtype, const void* a,
                    const void* b, const MatmulOutput& c, Workspace workspace) {
  check_matmul_types(dtype, c.dtype);
  check_matmul_batch(batch, dtype, c.dtype);
  check_matmul_output(c, batch.count);
  if (s.m == 0 || s.n == 0) return;
  GemmProblem problem = problem_of(s, dtype, c.dtype);
  problem.adds_bias = c.bias != nullptr;
  require_workspace(workspace, problem.workspace_limit, "matmul");
  if (batch.count > 1) {
    problem.batch = batch.count;
    problem.a_batch_stride = batch.a_stride;
    problem.b_batch_stride = batch.b_stride;
    problem.c_batch_stride = batch.c_stride;
  }
  gemm(exec, problem, {a, b, c.data, c.accumulate, c.bias, c.residual}, workspace);
}

}  // namespace bantam::kernels::cuda
