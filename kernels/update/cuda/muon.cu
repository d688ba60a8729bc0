// Muon's kernels on CUDA: a block a chunk of a weight matrix, and the polynomial of Gram matrices.
#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/update/cuda/block_sums.cuh"
#include "bantam/kernels/update/cuda/quads.cuh"
#include "bantam/kernels/update/muon.h"

namespace bantam::kernels::cuda {
namespace {

/// Calls `each` with this thread's quads of the chunk.
template <class Function>
__device__ inline void for_quads(const SpanChunk& chunk, const Function& each) {
  const std::int64_t end = (std::int64_t{chunk.weight_block} + chunk.weight_blocks) * kQuadsOfWeightBlock;
  for (std::int64_t i = chunk.weight_block * kQuadsOfWeightBlock + threadIdx.x; i < end; i += kUpdateThreads) each(i);
}

template <GradientForm kForm>
__global__ void __launch_bounds__(kUpdateThreads)
    muon_momentum_kernel(const __grid_constant__ UpdateArena arena, bool nesterov, MuonNormalization normalization,
                         const UpdateControl* control) {
  const SpanChunk chunk = arena.chunks.list[blockIdx.x];
  const ArenaSpan span = arena.spans[arena.span_of_weight_block[chunk.weight_block]];
  wait_then_let_next_start();
  if (control->found_nonfinite != 0 || !moves(arena, span, control->updates)) return;
  const float factor = control->gradient_factor, limit = limit_of<kForm>(arena, factor);
  const float beta = arena.groups[span.group].beta1;
  double sum = 0;
  for_quads(chunk, [&](std::int64_t i) {
    const Quad gradient =
        wide_gradient<kForm>(load_gradient<kForm != GradientForm::wide>(arena, i), arena.compute_dtype, limit);
    Quad m = load_quad(arena.slots[0], i), u;
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      const float g = gradient.v[k] * factor;
      m.v[k] = beta * m.v[k] + (1.0f - beta) * g;
      u.v[k] = nesterov ? beta * m.v[k] + (1.0f - beta) * g : m.v[k];
      sum += static_cast<double>(u.v[k]) * static_cast<double>(u.v[k]);
    }
    quad_at(arena.slots[0], i) = m;
    quad_at(arena.slots[1], i) = u;
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) arena.chunks.sums[2 * static_cast<std::int64_t>(blockIdx.x)] = sum;
  if (!normalization.is_due(control->updates)) return;
  sum = 0;
  for_quads(chunk, [&](std::int64_t i) {
    const Quad w = load_weights(arena, i).wide(arena.compute_dtype);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) sum += static_cast<double>(w.v[k]) * static_cast<double>(w.v[k]);
  });
  __syncthreads();  // block_sum's memory is used again
  sum = block_sum(sum);
  if (threadIdx.x == 0) arena.chunks.sums[2 * static_cast<std::int64_t>(blockIdx.x) + 1] = sum;
}

/// The root of a matrix's sums, on thread 0: `which` 0 of u², 1 of w².
__device__ inline float norm_of(const UpdateArena& arena, const SpanChunk& chunk, std::int32_t first, int which) {
  static_assert(kMostChunksOfSpan <= kUpdateThreads);
  const bool adds = threadIdx.x < chunk.chunks;
  const std::int64_t place = 2 * (std::int64_t{first} + threadIdx.x) + which;
  return static_cast<float>(sqrt(block_sum(adds ? __ldcg(arena.chunks.sums + place) : 0.0)));
}

/// Grid: chunks of a matrix, matrices.
template <class T>
__global__ void __launch_bounds__(kUpdateThreads)
    muon_normalize_kernel(const __grid_constant__ UpdateArena arena, const __grid_constant__ MuonMatrices matrices,
                          T* x) {
  __shared__ float factor;
  const std::int32_t first = matrices.first[blockIdx.y];
  const SpanChunk chunk = arena.chunks.list[first + blockIdx.x];
  const std::int64_t begin = arena.chunks.list[first].weight_block * kQuadsOfWeightBlock;
  T* const to = x + blockIdx.y * matrices.elements;
  wait_then_let_next_start();
  const float norm = norm_of(arena, chunk, first, 0);
  if (threadIdx.x == 0) factor = 1.0f / (norm + NewtonSchulz::kEpsilon);
  __syncthreads();
  for_quads(chunk, [&](std::int64_t i) {
    Quad u = load_quad(arena.slots[1], i);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) u.v[k] *= factor;
    repack<kQuad>(u.v, to + (i - begin) * kQuad);
  });
}

/// Grid: elements of a matrix, matrices.
template <class T>
__global__ void __launch_bounds__(kUpdateThreads)
    muon_polynomial_kernel(MuonSquares squares, NewtonSchulz p, const T* gram, const T* square, T* out) {
  const std::int64_t n = squares.n, at = blockIdx.y * squares.stride;
  wait_then_let_next_start();
  for (std::int64_t i = grid_thread(); i < n * n; i += grid_threads()) {
    const float value = p.b * to_float(__ldcg(gram + at + i)) + p.c * to_float(__ldcg(square + at + i));
    out[at + i] = from_float<T>(i / n == i % n ? value + p.a : value);
  }
}

/// Four neighbours of X as floats, past the first-level cache (load_quad).
__device__ inline Quad load_wide(const float* x, std::int64_t quad) { return load_quad(x, quad); }
template <class T>
__device__ inline Quad load_wide(const T* x, std::int64_t quad) {
  const uint2 bits = __ldcg(reinterpret_cast<const uint2*>(x) + quad);
  Quad wide;
  unpack<kQuad>(reinterpret_cast<const Pack<T, kQuad>&>(bits), wide.v);
  return wide;
}

/// Grid: chunks of a matrix, matrices.
template <class T>
__global__ void __launch_bounds__(kUpdateThreads)
    muon_apply_kernel(const __grid_constant__ UpdateArena arena, const __grid_constant__ MuonMatrices matrices,
                      MuonNormalization normalization, const T* x, const UpdateControl* control) {
  __shared__ float factor;
  const std::int32_t first = matrices.first[blockIdx.y];
  const SpanChunk chunk = arena.chunks.list[first + blockIdx.x];
  const ArenaSpan span = arena.spans[arena.span_of_weight_block[chunk.weight_block]];
  const std::int64_t begin = arena.chunks.list[first].weight_block * kQuadsOfWeightBlock;
  const T* const from = x + blockIdx.y * matrices.elements;
  wait_then_let_next_start();
  if (control->found_nonfinite != 0 || !moves(arena, span, control->updates)) return;
  const float lr = arena.groups[span.group].learning_rate, decay = arena.groups[span.group].weight_decay;
  if (threadIdx.x == 0) factor = 1.0f;
  if (normalization.is_due(control->updates)) {
    const float norm = norm_of(arena, chunk, first, 1);
    if (threadIdx.x == 0 && norm > 0.0f) factor = matrices.norm / norm;
  }
  __syncthreads();
  for_quads(chunk, [&](std::int64_t i) {
    Quad w = load_weights(arena, i).wide(arena.compute_dtype);
    Quad u = load_wide(from, i - begin);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      if ((i - begin) * kQuad + k >= matrices.values) u.v[k] = 0.0f;
      w.v[k] *= factor;
      w.v[k] -= lr * (matrices.scale * u.v[k] + decay * w.v[k]);
    }
    store_weights(arena, span, i, w);
  });
}

/// A block a chunk.
dim3 chunk_grid(const MuonMatrices& matrices) {
  return {static_cast<unsigned>(matrices.chunks), static_cast<unsigned>(matrices.count)};
}

}  // namespace

void muon_momentum(const Exec& exec, const UpdateArena& arena, bool nesterov, const MuonNormalization& normalization,
                   const UpdateControl* control) {
  using Kernel = void (*)(const UpdateArena, bool, MuonNormalization, const UpdateControl*);
  constexpr Kernel kForms[] = {muon_momentum_kernel<GradientForm::wide>, muon_momentum_kernel<GradientForm::mixed>,
                               muon_momentum_kernel<GradientForm::clipped>};
  if (arena.chunks.count == 0) return;
  launch_early(exec, kForms[static_cast<std::size_t>(form_of(arena))], dim3(static_cast<unsigned>(arena.chunks.count)),
               dim3(kUpdateThreads), arena, nesterov, normalization, control);
}

void muon_normalize(const Exec& exec, const UpdateArena& arena, const MuonMatrices& matrices, DType dtype, void* x) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_early(exec, muon_normalize_kernel<T>, chunk_grid(matrices), dim3(kUpdateThreads), arena, matrices,
                 static_cast<T*>(x));
  });
}

void muon_polynomial(const Exec& exec, const MuonSquares& squares, const NewtonSchulz& p, DType dtype, const void* gram,
                     const void* square, void* out) {
  const dim3 grid(stride_blocks(squares.n * squares.n, kUpdateThreads), static_cast<unsigned>(squares.count));
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_early(exec, muon_polynomial_kernel<T>, grid, dim3(kUpdateThreads), squares, p, static_cast<const T*>(gram),
                 static_cast<const T*>(square), static_cast<T*>(out));
  });
}

void muon_apply(const Exec& exec, const UpdateArena& arena, const MuonMatrices& matrices,
                const MuonNormalization& normalization, DType dtype, const void* x, const UpdateControl* control) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_early(exec, muon_apply_kernel<T>, chunk_grid(matrices), dim3(kUpdateThreads), arena, matrices, normalization,
                 static_cast<const T*>(x), control);
  });
}

}  // namespace bantam::kernels::cuda
