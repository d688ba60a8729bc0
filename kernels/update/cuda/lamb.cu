// LAMB in two kernels of a block a chunk: the step is computed twice, so that it needs no memory.
#include <algorithm>

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/update/cuda/block_sums.cuh"
#include "bantam/kernels/update/cuda/lamb.h"
#include "bantam/kernels/update/cuda/quads.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kBlocks = 4;  // at once on a multiprocessor

using Rule = rules::Lamb<CudaMath>;

/// Values of the chunk's group, for all threads of its block; in shared memory.
__device__ const rules::StepValues& values_of(const UpdateArena& arena, ArenaSpan span, const UpdateControl& control) {
  __shared__ rules::StepValues values;
  if (threadIdx.x == 0)
    values = step_values<Rule, CudaMath>(true, arena.groups[span.group],
                                         updates_of_group(arena, span.group, control.updates));
  __syncthreads();
  return values;
}

/// Moves the moments of chunk blockIdx.x; writes its Σw² and Σu².
template <GradientForm kForm>
__global__ void __launch_bounds__(kUpdateThreads, kBlocks)
    lamb_moments_kernel(const __grid_constant__ UpdateArena arena, const UpdateControl* control) {
  const SpanChunk chunk = arena.chunks.list[blockIdx.x];
  const ArenaSpan span = arena.spans[arena.span_of_weight_block[chunk.weight_block]];
  wait_then_let_next_start();
  if (control->found_nonfinite != 0 || !moves(arena, span, control->updates)) return;
  const rules::StepValues& s = values_of(arena, span, *control);
  const float factor = control->gradient_factor, limit = limit_of<kForm>(arena, factor);
  const std::int64_t end = (std::int64_t{chunk.weight_block} + chunk.weight_blocks) * kQuadsOfWeightBlock;
  double weights = 0, steps = 0;
  for (std::int64_t i = chunk.weight_block * kQuadsOfWeightBlock + threadIdx.x; i < end; i += kUpdateThreads) {
    QuadState<Rule::kSlots> q{};
    q.load(arena, i);
    q.widen_weights(arena, i);
    const Quad gradient =
        wide_gradient<kForm>(load_gradient<kForm != GradientForm::wide>(arena, i), arena.compute_dtype, limit);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      rules::Element<Rule::kSlots> e = q.element(k);
      Rule::move_means(e, gradient.v[k] * factor, s);
      q.set_element(k, e);
      const auto w = static_cast<double>(e.w), u = static_cast<double>(Rule::step(e, s));
      weights += w * w;
      steps += u * u;
    }
    q.store_slots(arena, i);
  }
  weights = block_sum(weights);
  __syncthreads();
  steps = block_sum(steps);
  if (threadIdx.x == 0) reinterpret_cast<double2*>(arena.chunks.sums)[blockIdx.x] = {weights, steps};
}

/// The trust ratio of the chunk's span, for all threads of its block.
__device__ float ratio_of(const SpanChunks& chunks, const SpanChunk& chunk) {
  static_assert(kMostChunksOfSpan <= kUpdateThreads);
  __shared__ float ratio;
  double2 sums{};
  if (threadIdx.x < chunk.chunks)
    sums = __ldcg(reinterpret_cast<const double2*>(chunks.sums) + chunk.first + threadIdx.x);
  const double weights = block_sum(sums.x);
  __syncthreads();
  const double steps = block_sum(sums.y);
  if (threadIdx.x == 0) ratio = trust_ratio(weights, steps);
  __syncthreads();
  return ratio;
}

/// Moves the weights of chunk blockIdx.x, by the moments that lamb_moments_kernel wrote. One block at least, for the
/// running statistics.
__global__ void __launch_bounds__(kUpdateThreads, kBlocks)
    lamb_weights_kernel(const __grid_constant__ UpdateArena arena, UpdateBuffers buffers,
                        const UpdateControl* control) {
  wait_then_let_next_start();
  const bool skip = control->found_nonfinite != 0;
  publish_buffers(buffers, skip);
  if (skip || blockIdx.x >= arena.chunks.count) return;
  const SpanChunk chunk = arena.chunks.list[blockIdx.x];
  const ArenaSpan span = arena.spans[arena.span_of_weight_block[chunk.weight_block]];
  if (!moves(arena, span, control->updates)) return;
  const rules::StepValues& s = values_of(arena, span, *control);
  const float rate = s.lr * ratio_of(arena.chunks, chunk);
  const std::int64_t end = (std::int64_t{chunk.weight_block} + chunk.weight_blocks) * kQuadsOfWeightBlock;
  for (std::int64_t i = chunk.weight_block * kQuadsOfWeightBlock + threadIdx.x; i < end; i += kUpdateThreads) {
    QuadState<Rule::kSlots> q{};
    q.load(arena, i);
    q.widen_weights(arena, i);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) q.w.v[k] -= rate * Rule::step(q.element(k), s);
    store_weights(arena, span, i, q.w);
  }
}

}  // namespace

void lamb_update(const Exec& exec, const UpdateArena& arena, const UpdateBuffers& buffers,
                 const UpdateControl* control) {
  using Kernel = void (*)(const UpdateArena, const UpdateControl*);
  constexpr Kernel kMoments[] = {lamb_moments_kernel<GradientForm::wide>, lamb_moments_kernel<GradientForm::mixed>,
                                 lamb_moments_kernel<GradientForm::clipped>};
  const auto chunks = static_cast<unsigned>(arena.chunks.count);
  if (chunks > 0)
    launch_early(exec, kMoments[static_cast<std::size_t>(form_of(arena))], dim3(chunks), dim3(kUpdateThreads), arena,
                 control);
  launch_early(exec, lamb_weights_kernel, dim3(std::max(chunks, 1u)), dim3(kUpdateThreads), arena, buffers, control);
}

}  // namespace bantam::kernels::cuda
