// The weight update on CUDA in two kernels: a norm in double that its last block adds up, and one pass over all
// parameters.
#include "bantam/kernels/contracts/update/update.h"
#include "bantam/kernels/cuda/device/early_launch.cuh"
#include "bantam/kernels/cuda/device/last_block.cuh"
#include "bantam/kernels/cuda/device/libraries.h"
#include "bantam/kernels/cuda/device/vectorized.cuh"
#include "bantam/kernels/cuda/update/narrow_gradients.cuh"
#include "bantam/kernels/cuda/update/partial_sums.cuh"
#include "bantam/kernels/tiling/update/update_rules.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPartials =
    static_cast<int>(gradient_sum_blocks(std::int64_t{1} << 40) + kMostSumBlocks) / kThreads;  // at most, a thread
// Blocks of apply_update at once on a multiprocessor: as many as a small model has; fewer, with the registers that
// narrow gradients need. 7.5 holds 1,024 threads.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kApplyBlocks = 4, kNarrowApplyBlocks = 4;
#else
constexpr int kApplyBlocks = 6, kNarrowApplyBlocks = 5;
#endif
static_assert(kQuadsOfGranule == kWarp, "a warp reads one granule");

using Quad = Pack<float, kQuad>;

__device__ inline Quad& quad_at(float* values, std::int64_t i) { return reinterpret_cast<Quad*>(values)[i]; }
/// Past the first-level cache, which kernels that read before they wait cannot trust, and which helps none here.
__device__ inline Quad load_quad(const float* values, std::int64_t i) {
  const float4 v = __ldcg(reinterpret_cast<const float4*>(values) + i);
  return {{v.x, v.y, v.z, v.w}};
}

/// The sum over a block of kThreads, for thread 0, in a fixed order.
__device__ double block_sum(double value) {
  __shared__ double shared[kWarps];
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kWarps; ++warp) sum += shared[warp];
  }
  return sum;
}

/// What `begin_update` adds up, and by how many of the grid's blocks.
struct GradientSums {
  PartialSums partial;
  PartialSumGranules granules;  // of the partial sums
  int shares, share_blocks;     // the last blocks of the grid add the shares up in turn
};

/// Σg² of this thread's elements in the granules that lie in memory.
template <bool kNarrow>
__device__ double sum_of_granules(const UpdateArena& arena, const GradientSums& sums) {
  constexpr int kTogether = 4;  // granules read at once
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x - sums.share_blocks) * kWarps;
  double sum = 0;
  for (std::int64_t first = grid_thread() / kWarp; first < arena.granules; first += warps * kTogether) {
    GradientQuad g[kTogether];
    bool counts[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const std::int64_t granule = first + k * warps;
      counts[k] = granule < arena.granules && !sums.granules.contain(granule);
      if (!counts[k]) continue;
      g[k] = load_gradient<kNarrow>(arena, granule * kQuadsOfGranule + threadIdx.x % kWarp);
      counts[k] = !arena.spans[arena.span_of_granule[granule]].frozen;
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

/// partials[block] = Σg² over its granules or added-up partial sums; the last block adds them in order, and counts the
/// update. In double no finite float overflows, so the sum is finite exactly where every g is.
template <bool kNarrow>
__global__ void __launch_bounds__(kThreads)
    begin_update_kernel(const __grid_constant__ UpdateArena arena, const __grid_constant__ GradientSums sums,
                        double* partials, unsigned* counter, UpdateControl* control) {
  wait_for_kernel_before();  // it may write gradients
  const int granule_blocks = static_cast<int>(gridDim.x) - sums.share_blocks;
  const int block = static_cast<int>(blockIdx.x);
  double sum =
      block < granule_blocks ? sum_of_granules<kNarrow>(arena, sums) : sum_of_shares(sums, block - granule_blocks);
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

/// One group's values, as the inner loops read them.
struct StepValues {
  float lr;
  float decay;            // times the weight, added to the gradient (sgd, adam)
  float decoupled_decay;  // times the weight, added to the step (adamw)
  float beta1, beta2, epsilon;
  float correction1, correction2;  // 1/(1 - beta^t)
};

/// 1/(1 - beta^t) = -1/expm1(t·log1p(beta - 1)): in float within a few units in the last place, also where beta^t is
/// close to 1.
__device__ inline float bias_correction(float beta, float t) { return -1.0f / expm1f(t * log1pf(beta - 1.0f)); }

__device__ inline StepValues step_values(OptimizerKind kind, const UpdateGroup& group, float t) {
  const bool decoupled = kind == OptimizerKind::adamw;
  return {group.learning_rate,
          decoupled ? 0.0f : group.weight_decay,
          decoupled ? group.weight_decay : 0.0f,
          group.beta1,
          group.beta2,
          group.epsilon,
          bias_correction(group.beta1, t),
          bias_correction(group.beta2, t)};
}

/// Casts the new values of a quad into the compute slot.
__device__ inline void store_compute(const UpdateArena& arena, std::int64_t quad, const Quad& w) {
  const std::int64_t at = quad * kQuad;
  switch (arena.compute_dtype) {
    case DType::float16:
      repack<kQuad>(w.v, static_cast<__half*>(arena.compute) + at);
      break;
    case DType::bfloat16:
      repack<kQuad>(w.v, static_cast<__nv_bfloat16*>(arena.compute) + at);
      break;
    default:
      repack<kQuad>(w.v, static_cast<float*>(arena.compute) + at);
      break;
  }
}

/// What an update of kMoments moments reads of four elements.
template <int kMoments>
struct QuadState {
  GradientQuad g;
  Quad w, m, v;

  __device__ void load(const UpdateArena& arena, std::int64_t quad) {
    w = load_quad(arena.master, quad);
    if constexpr (kMoments > 0) m = load_quad(arena.moment1, quad);
    if constexpr (kMoments > 1) v = load_quad(arena.moment2, quad);
  }
  __device__ void store(const UpdateArena& arena, std::int64_t quad) const {
    quad_at(arena.master, quad) = w;
    if constexpr (kMoments > 0) quad_at(arena.moment1, quad) = m;
    if constexpr (kMoments > 1) quad_at(arena.moment2, quad) = v;
  }
};

/// Within a unit in the last place, in one instruction; √ as IEEE rounds it costs a dozen and a branch, and is a
/// quarter of what Adam computes. Likewise __fdividef, within two units (of divisors up to 2^126).
__device__ inline float square_root(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

__device__ inline void move_weights(QuadState<2>& q, const Quad& gradient, const StepValues& s, float factor, bool) {
#pragma unroll
  for (int k = 0; k < kQuad; ++k) {
    const float g = gradient.v[k] * factor + s.decay * q.w.v[k];
    q.m.v[k] = s.beta1 * q.m.v[k] + (1.0f - s.beta1) * g;
    q.v.v[k] = s.beta2 * q.v.v[k] + (1.0f - s.beta2) * g * g;
    const float divisor = square_root(q.v.v[k] * s.correction2) + s.epsilon;
    // Where nothing ever came (padding) and epsilon is 0, 0/0 counts as 0.
    const float step = divisor != 0 ? __fdividef(q.m.v[k] * s.correction1, divisor) : 0.0f;
    q.w.v[k] -= s.lr * (step + s.decoupled_decay * q.w.v[k]);
  }
}

__device__ inline void move_weights(QuadState<1>& q, const Quad& gradient, const StepValues& s, float factor,
                                    bool nesterov) {
#pragma unroll
  for (int k = 0; k < kQuad; ++k) {
    const float g = gradient.v[k] * factor + s.decay * q.w.v[k];
    q.m.v[k] = s.beta1 * q.m.v[k] + g;
    q.w.v[k] -= s.lr * (nesterov ? g + s.beta1 * q.m.v[k] : q.m.v[k]);
  }
}

__device__ inline void move_weights(QuadState<0>& q, const Quad& gradient, const StepValues& s, float factor, bool) {
#pragma unroll
  for (int k = 0; k < kQuad; ++k) q.w.v[k] -= s.lr * (gradient.v[k] * factor + s.decay * q.w.v[k]);
}

__device__ void publish_buffers(const UpdateBuffers& buffers, bool skip) {
  for (std::int64_t i = grid_thread(); i < buffers.elements; i += grid_threads()) {
    if (skip) {
      buffers.next[i] = buffers.current[i];
    } else {
      buffers.current[i] = buffers.next[i];
    }
  }
}

/// The first loads of each thread are on their way while `begin_update`, which writes gradients at most, ends; those of
/// gradients while the block works out the groups' values.
template <int kMoments, bool kNarrow>
__global__ void __launch_bounds__(kThreads, kNarrow ? kNarrowApplyBlocks : kApplyBlocks)
    apply_update_kernel(OptimizerKind kind, const __grid_constant__ UpdateArena arena, UpdateBuffers buffers,
                        const UpdateControl* control) {
  __shared__ StepValues values[kMostUpdateGroups];
  const std::int64_t quads = arena.granules * kQuadsOfGranule;
  std::int64_t i = grid_thread();
  QuadState<kMoments> state{};
  ArenaSpan span{};
  const auto load = [&] {
    state.load(arena, i);
    span = arena.spans[arena.span_of_granule[i / kQuadsOfGranule]];
  };
  if (i < quads) load();
  wait_then_let_next_start();  // for control, and partial sums
  if (i < quads) state.g = load_gradient<kNarrow>(arena, i);
  if (threadIdx.x < arena.group_count)
    values[threadIdx.x] = step_values(kind, arena.groups[threadIdx.x], static_cast<float>(control->updates));
  const bool skip = control->found_nonfinite != 0;
  const float factor = control->gradient_factor;
  __syncthreads();
  publish_buffers(buffers, skip);
  if (skip) return;
  while (i < quads) {
    if (!span.frozen) {
      move_weights(state, state.g.wide(arena.compute_dtype), values[span.group], factor,
                   kind == OptimizerKind::sgd_nesterov);
      state.store(arena, i);
      if (arena.compute != nullptr && span.compute_copy) store_compute(arena, i, state.w);
    }
    i += grid_threads();
    if (i >= quads) break;
    load();
    state.g = load_gradient<kNarrow>(arena, i);
  }
}

template <bool kNarrow>
auto apply_kernel(int moments) {
  return moments == 2   ? apply_update_kernel<2, kNarrow>
         : moments == 1 ? apply_update_kernel<1, kNarrow>
                        : apply_update_kernel<0, kNarrow>;
}

}  // namespace

void begin_update(const Exec& exec, const UpdateArena& arena, const PartialSums& partial, UpdateControl* control,
                  Workspace workspace) {
  static_assert(kThreads == kPartSumThreads);
  GradientSums sums{.partial = partial, .granules = partial_sum_granules(arena, partial), .shares = shares_of(partial)};
  sums.share_blocks = std::min(sums.shares, static_cast<int>(kMostSumBlocks));
  const auto blocks = static_cast<unsigned>(gradient_sum_blocks(arena.granules) + sums.share_blocks);
  const auto kernel = arena.narrow.count > 0 ? begin_update_kernel<true> : begin_update_kernel<false>;
  launch_early(exec, kernel, dim3(blocks), dim3(kThreads), arena, sums, static_cast<double*>(workspace.data),
               Libraries::of(exec).block_counters(exec.stream), control);
}

void apply_update(const Exec& exec, OptimizerKind kind, const UpdateArena& arena, const UpdateBuffers& buffers,
                  const UpdateControl* control) {
  require_group_count(arena);
  const std::int64_t items = std::max(arena.granules * kQuadsOfGranule, buffers.elements);
  if (items <= 0) return;
  const bool adam = kind == OptimizerKind::adam || kind == OptimizerKind::adamw;
  const int moments = adam ? 2 : arena.moment1 != nullptr ? 1 : 0;
  const auto kernel = arena.narrow.count > 0 ? apply_kernel<true>(moments) : apply_kernel<false>(moments);
  launch_early(exec, kernel, dim3(stride_blocks(items, kThreads)), dim3(kThreads), kind, arena, buffers, control);
}

}  // namespace bantam::kernels::cuda
