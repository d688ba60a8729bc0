// Muon's kernels on CUDA: a block a chunk of a weight matrix, and the polynomial of its Gram matrix.
#include "bantam/kernels/contracts/update/muon.h"
#include "bantam/kernels/cuda/device/early_launch.cuh"
#include "bantam/kernels/cuda/update/block_sums.cuh"
#include "bantam/kernels/cuda/update/rules.cuh"

namespace bantam::kernels::cuda {
namespace {

/// Calls `each` with this thread's quads of the chunk.
template <class Function>
__device__ inline void for_quads(const SpanChunk& chunk, const Function& each) {
  const std::int64_t end = (std::int64_t{chunk.granule} + chunk.granules) * kQuadsOfGranule;
  for (std::int64_t i = chunk.granule * kQuadsOfGranule + threadIdx.x; i < end; i += kUpdateThreads) each(i);
}

template <GradientForm kForm>
__global__ void __launch_bounds__(kUpdateThreads)
    muon_momentum_kernel(const __grid_constant__ UpdateArena arena, bool nesterov, const UpdateControl* control) {
  const SpanChunk chunk = arena.chunks.list[blockIdx.x];
  const ArenaSpan span = arena.spans[arena.span_of_granule[chunk.granule]];
  wait_then_let_next_start();
  if (control->found_nonfinite != 0 || !moves(arena, span, control->updates)) return;
  const float factor = control->gradient_factor, limit = limit_of<kForm>(arena, factor);
  const float beta = arena.groups[span.group].beta1;
  double sum = 0;
  for_quads(chunk, [&](std::int64_t i) {
    const Quad gradient =
        wide_gradient<kForm>(load_gradient<kForm != GradientForm::wide>(arena, i), arena.compute_dtype, limit);
    Quad m = load_quad(arena.moment1, i), u;
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      const float g = gradient.v[k] * factor;
      m.v[k] = beta * m.v[k] + (1.0f - beta) * g;
      u.v[k] = nesterov ? beta * m.v[k] + (1.0f - beta) * g : m.v[k];
      sum += static_cast<double>(u.v[k]) * static_cast<double>(u.v[k]);
    }
    quad_at(arena.moment1, i) = m;
    quad_at(arena.moment2, i) = u;
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) arena.chunks.sums[2 * static_cast<std::int64_t>(blockIdx.x)] = sum;
}

__global__ void __launch_bounds__(kUpdateThreads)
    muon_normalize_kernel(const __grid_constant__ UpdateArena arena, std::int32_t first, float* x) {
  static_assert(kMostChunksOfSpan <= kUpdateThreads);
  __shared__ float factor;
  const SpanChunk chunk = arena.chunks.list[first + blockIdx.x];
  const std::int64_t begin = arena.chunks.list[first].granule * kQuadsOfGranule;
  wait_then_let_next_start();
  const bool adds = threadIdx.x < chunk.chunks;
  const double sum = block_sum(adds ? __ldcg(arena.chunks.sums + 2 * (std::int64_t{first} + threadIdx.x)) : 0.0);
  if (threadIdx.x == 0) factor = 1.0f / (static_cast<float>(sqrt(sum)) + NewtonSchulz::kEpsilon);
  __syncthreads();
  for_quads(chunk, [&](std::int64_t i) {
    Quad u = load_quad(arena.moment2, i);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) u.v[k] *= factor;
    quad_at(x, i - begin) = u;
  });
}

__global__ void __launch_bounds__(kUpdateThreads)
    muon_polynomial_kernel(std::int64_t n, const float* gram, const float* square, float* out) {
  wait_then_let_next_start();
  for (std::int64_t i = grid_thread(); i < n * n; i += grid_threads()) {
    const float value = NewtonSchulz::kB * __ldcg(gram + i) + NewtonSchulz::kC * __ldcg(square + i);
    out[i] = i / n == i % n ? value + NewtonSchulz::kA : value;
  }
}

__global__ void __launch_bounds__(kUpdateThreads)
    muon_apply_kernel(const __grid_constant__ UpdateArena arena, std::int32_t first, float scale,
                      const UpdateControl* control) {
  const SpanChunk chunk = arena.chunks.list[first + blockIdx.x];
  const ArenaSpan span = arena.spans[arena.span_of_granule[chunk.granule]];
  wait_then_let_next_start();
  if (control->found_nonfinite != 0 || !moves(arena, span, control->updates)) return;
  const float lr = arena.groups[span.group].learning_rate, decay = arena.groups[span.group].weight_decay;
  for_quads(chunk, [&](std::int64_t i) {
    Quad w = load_quad(arena.master, i);
    const Quad u = load_quad(arena.moment2, i);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) w.v[k] -= lr * (scale * u.v[k] + decay * w.v[k]);
    quad_at(arena.master, i) = w;
    if (arena.compute != nullptr && span.compute_copy) store_compute(arena, i, w);
  });
}

}  // namespace

void muon_momentum(const Exec& exec, const UpdateArena& arena, bool nesterov, const UpdateControl* control) {
  using Kernel = void (*)(const UpdateArena, bool, const UpdateControl*);
  constexpr Kernel kForms[] = {muon_momentum_kernel<GradientForm::wide>, muon_momentum_kernel<GradientForm::mixed>,
                               muon_momentum_kernel<GradientForm::clipped>};
  if (arena.chunks.count == 0) return;
  launch_early(exec, kForms[static_cast<std::size_t>(form_of(arena))], dim3(static_cast<unsigned>(arena.chunks.count)),
               dim3(kUpdateThreads), arena, nesterov, control);
}

void muon_normalize(const Exec& exec, const UpdateArena& arena, const MuonMatrix& matrix, float* x) {
  launch_early(exec, muon_normalize_kernel, dim3(static_cast<unsigned>(matrix.chunks)), dim3(kUpdateThreads), arena,
               matrix.first, x);
}

void muon_polynomial(const Exec& exec, std::int64_t n, const float* gram, const float* square, float* out) {
  launch_early(exec, muon_polynomial_kernel, dim3(stride_blocks(n * n, kUpdateThreads)), dim3(kUpdateThreads), n, gram,
               square, out);
}

void muon_apply(const Exec& exec, const UpdateArena& arena, const MuonMatrix& matrix, const UpdateControl* control) {
  launch_early(exec, muon_apply_kernel, dim3(static_cast<unsigned>(matrix.chunks)), dim3(kUpdateThreads), arena,
               matrix.first, matrix.scale, control);
}

}  // namespace bantam::kernels::cuda
