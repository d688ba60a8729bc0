// The weight update on CUDA in two kernels: a norm in double that its last block adds up, and one pass over all
// parameters.
#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/last_block.cuh"
#include "bantam/kernels/common/cuda/libraries.h"
#include "bantam/kernels/update/cuda/block_sums.cuh"
#include "bantam/kernels/update/cuda/lamb.h"
#include "bantam/kernels/update/cuda/partial_sums.cuh"
#include "bantam/kernels/update/cuda/quads.cuh"
#include "bantam/kernels/update/update.h"
#include "bantam/kernels/update/update_rules.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = kUpdateThreads;
constexpr int kWarps = kUpdateWarps;
constexpr int kPartials =
    static_cast<int>(gradient_sum_blocks(std::int64_t{1} << 40) + kMostSumBlocks) / kThreads;  // at most, a thread
// Blocks of apply_update at once on a multiprocessor: as many as a small model has; fewer, with the registers that
// narrow gradients need. 7.5 holds 1,024 threads.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kApplyBlocks = 4, kNarrowApplyBlocks = 4;
#else
constexpr int kApplyBlocks = 6, kNarrowApplyBlocks = 5;
#endif
static_assert(kQuadsOfWeightBlock == kWarp, "a warp reads one weight block");

/// The sums that `begin_update` adds up, and by how many of the grid's blocks.
struct GradientSums {
  PartialSums partial;
  PartialSumWeightBlocks weight_blocks;  // of the partial sums
  int shares, share_blocks;              // the last blocks of the grid add the shares up in turn
};

/// Whether a span moves in the update that begins; of most it is known without reading how many were done.
__device__ inline bool moves(const UpdateArena& arena, const ArenaSpan& span, const UpdateControl* control) {
  return span.frozen == 0 || (span.frozen == kFrozenForNow && moves(arena, span, control->updates + 1));
}

/// Σg² of this thread's elements in the weight blocks that lie in memory.
template <bool kNarrow>
__device__ double sum_of_weight_blocks(const UpdateArena& arena, const GradientSums& sums,
                                       const UpdateControl* control) {
  constexpr int kTogether = 4;  // weight blocks read at once
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x - sums.share_blocks) * kWarps;
  double sum = 0;
  for (std::int64_t first = grid_thread() / kWarp; first < arena.weight_blocks; first += warps * kTogether) {
    GradientQuad g[kTogether];
    bool counts[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const std::int64_t weight_block = first + k * warps;
      counts[k] = weight_block < arena.weight_blocks && !sums.weight_blocks.contain(weight_block);
      if (!counts[k]) continue;
      g[k] = load_gradient<kNarrow>(arena, weight_block * kQuadsOfWeightBlock + threadIdx.x % kWarp);
      counts[k] = moves(arena, arena.spans[arena.span_of_weight_block[weight_block]], control);
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (!counts[k]) continue;
      const Quad wide = g[k].wide(arena.compute_dtype);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) sum += static_cast<double>(wide.v[i]) * static_cast<double>(wide.v[i]);
    }
  }
  return sum;
}

/// Σg² of the gradients that this thread added up.
__device__ double sum_of_shares(const GradientSums& sums, int block) {
  double sum = 0;
  for (int share = block; share < sums.shares; share += sums.share_blocks) {
    const auto g = static_cast<double>(make_share(sums.partial, share));
    sum += g * g;
  }
  return sum;
}

/// partials[block] = Σg² over its weight blocks or added-up partial sums; the last block adds them in order, and counts
/// the update. In double no finite float overflows, so the sum is finite exactly where every g is.
template <bool kNarrow>
__global__ void __launch_bounds__(kThreads)
    begin_update_kernel(const __grid_constant__ UpdateArena arena, const __grid_constant__ GradientSums sums,
                        double* partials, unsigned* counter, UpdateControl* control) {
  wait_for_kernel_before();  // it may write gradients
  const int sum_blocks = static_cast<int>(gridDim.x) - sums.share_blocks;
  const int block = static_cast<int>(blockIdx.x);
  double sum = block < sum_blocks ? sum_of_weight_blocks<kNarrow>(arena, sums, control)
                                  : sum_of_shares(sums, block - sum_blocks);
  let_next_kernel_start();  // after the loads above, which apply_update's would slow down
  UpdateControl now{};
  float learning_rate = 0;
  if (threadIdx.x == 0) {  // on their way while the blocks' sums come together
    now = *control;
    learning_rate = noted_learning_rate(arena);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
  if (!last_of_grid(counter)) return;
  double parts[kPartials];
#pragma unroll
  for (int k = 0; k < kPartials; ++k) {
    const unsigned i = threadIdx.x + k * kThreads;
    parts[k] = i < gridDim.x ? __ldcg(partials + i) : 0.0;
  }
  sum = 0;
#pragma unroll
  for (int k = 0; k < kPartials; ++k) sum += parts[k];
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  finish_begin_update(sum, learning_rate, arena, now);
  *control = now;
}

/// The first loads of each thread are on their way while `begin_update`, which writes gradients at most, ends; those of
/// gradients while the block works out the groups' values.
template <class Rule, GradientForm kForm>
__global__ void __launch_bounds__(kThreads, kForm == GradientForm::wide ? kApplyBlocks : kNarrowApplyBlocks)
    apply_update_kernel(bool decoupled, const __grid_constant__ UpdateArena arena, UpdateBuffers buffers,
                        const UpdateControl* control) {
  constexpr bool kNarrow = kForm != GradientForm::wide;
  __shared__ rules::StepValues values[kMostUpdateGroups];
  __shared__ bool still[kMostUpdateGroups];  // a group that is frozen for now
  const std::int64_t quads = arena.weight_blocks * kQuadsOfWeightBlock;
  std::int64_t i = grid_thread();
  QuadState<Rule::kSlots> state{};
  ArenaSpan span{};
  const auto load = [&] {
    state.load(arena, i);
    span = arena.spans[arena.span_of_weight_block[i / kQuadsOfWeightBlock]];
  };
  if (i < quads) load();
  wait_then_let_next_start();  // for control, and partial sums
  if (i < quads) state.g = load_gradient<kNarrow>(arena, i);
  if (threadIdx.x < arena.group_count) {
    const std::int64_t t = updates_of_group(arena, static_cast<std::int32_t>(threadIdx.x), control->updates);
    values[threadIdx.x] = step_values<Rule, CudaMath>(decoupled, arena.groups[threadIdx.x], t);
    still[threadIdx.x] = t <= 0;
  }
  const bool skip = control->found_nonfinite != 0;
  const float factor = control->gradient_factor, limit = limit_of<kForm>(arena, factor);
  __syncthreads();
  publish_buffers(buffers, skip);
  if (skip) return;
  while (i < quads) {
    if (span.frozen == 0 || (span.frozen == kFrozenForNow && !still[span.group])) {
      state.widen_weights(arena, i);
      const Quad gradient = wide_gradient<kForm>(state.g, arena.compute_dtype, limit);
#pragma unroll
      for (int k = 0; k < kQuad; ++k) {
        rules::Element<Rule::kSlots> e = state.element(k);
        Rule::move(e, gradient.v[k] * factor, values[span.group]);
        state.set_element(k, e);
      }
      state.store_slots(arena, i);
      store_weights(arena, span, i, state.w);
    }
    i += grid_threads();
    if (i >= quads) break;
    load();
    state.g = load_gradient<kNarrow>(arena, i);
  }
}

using ApplyKernel = void (*)(bool decoupled, const UpdateArena, UpdateBuffers, const UpdateControl*);

/// A rule's kernels, by GradientForm; nulls: it has kernels of its own.
struct ApplyKernels {
  ApplyKernel forms[3];
};

template <class Rule>
constexpr ApplyKernels apply_kernels() {
  if constexpr (Rule::kByNorm) {
    return {};
  } else {
    return {{apply_update_kernel<Rule, GradientForm::wide>, apply_update_kernel<Rule, GradientForm::mixed>,
             apply_update_kernel<Rule, GradientForm::clipped>}};
  }
}

/// The kernels of each UpdateKind, one for each GradientForm.
const ApplyKernels kApplyKernels[] = {
#define BANTAM_APPLY_KERNELS(name, Rule, decoupled) apply_kernels<rules::Rule<CudaMath>>(),
    BANTAM_UPDATE_RULES(BANTAM_APPLY_KERNELS)
#undef BANTAM_APPLY_KERNELS
};

/// A quad a thread: the compute copies; then running statistics.
__global__ void __launch_bounds__(kThreads)
    publish_weights_kernel(const __grid_constant__ UpdateArena arena, UpdateBuffers buffers,
                           const UpdateControl* control) {
  wait_then_let_next_start();
  const bool skip = control->found_nonfinite != 0;
  publish_buffers(buffers, skip);
  if (skip || arena.compute == nullptr) return;
  const std::int64_t quads = arena.weight_blocks * kQuadsOfWeightBlock;
  for (std::int64_t i = grid_thread(); i < quads; i += grid_threads())
    if (arena.spans[arena.span_of_weight_block[i / kQuadsOfWeightBlock]].compute_copy)
      store_compute(arena, i, load_quad(arena.master, i));
}

__global__ void __launch_bounds__(kThreads)
    clip_gradients_kernel(std::int64_t quads, const __grid_constant__ UpdateArena arena, const UpdateControl* control,
                          float* out) {
  wait_then_let_next_start();
  const float limit = gradient_limit(arena, control->gradient_factor);
  for (std::int64_t i = grid_thread(); i < quads; i += grid_threads())
    quad_at(out, i) = wide_gradient<GradientForm::clipped>(load_gradient<false>(arena, i), arena.compute_dtype, limit);
}

}  // namespace

void begin_update(const Exec& exec, const UpdateArena& arena, const PartialSums& partial, UpdateControl* control,
                  Workspace workspace) {
  static_assert(kThreads == kPartSumThreads);
  GradientSums sums{
      .partial = partial, .weight_blocks = partial_sum_weight_blocks(arena, partial), .shares = shares_of(partial)};
  sums.share_blocks = std::min(sums.shares, static_cast<int>(kMostSumBlocks));
  const auto blocks = static_cast<unsigned>(gradient_sum_blocks(arena.weight_blocks) + sums.share_blocks);
  const auto kernel = arena.narrow.count > 0 ? begin_update_kernel<true> : begin_update_kernel<false>;
  launch_early(exec, kernel, dim3(blocks), dim3(kThreads), arena, sums, static_cast<double*>(workspace.data),
               Libraries::of(exec).block_counters(exec.stream), control);
}

void apply_update(const Exec& exec, UpdateKind kind, const UpdateArena& arena, const UpdateBuffers& buffers,
                  const UpdateControl* control) {
  require_group_count(arena);
  const std::int64_t items = std::max(arena.weight_blocks * kQuadsOfWeightBlock, buffers.elements);
  if (items <= 0) return;
  const UpdateRuleFacts& rule = facts_of(kind);
  if (rule.by_norm) return lamb_update(exec, arena, buffers, control);
  const ApplyKernel kernel = kApplyKernels[static_cast<int>(kind)].forms[static_cast<std::size_t>(form_of(arena))];
  launch_early(exec, kernel, dim3(stride_blocks(items, kThreads)), dim3(kThreads), rule.decoupled_decay, arena, buffers,
               control);
}

void publish_weights(const Exec& exec, const UpdateArena& arena, const UpdateBuffers& buffers,
                     const UpdateControl* control) {
  const std::int64_t items = std::max(arena.weight_blocks * kQuadsOfWeightBlock, buffers.elements);
  if (items <= 0) return;
  launch_early(exec, publish_weights_kernel, dim3(stride_blocks(items, kThreads)), dim3(kThreads), arena, buffers,
               control);
}

void clip_gradients(const Exec& exec, const UpdateArena& arena, const UpdateControl* control, float* out) {
  const std::int64_t quads = arena.weight_blocks * kQuadsOfWeightBlock;
  if (quads == 0) return;
  launch_early(exec, clip_gradients_kernel, dim3(stride_blocks(quads, kThreads)), dim3(kThreads), quads, arena, control,
               out);
}

}  // namespace bantam::kernels::cuda
