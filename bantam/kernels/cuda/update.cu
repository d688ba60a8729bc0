// The weight update on CUDA: a two-stage norm in double, one kernel over all parameters, one for the bookkeeping.
#include "bantam/kernels/cuda/vectorized.cuh"
#include "bantam/kernels/update.h"
#include "bantam/kernels/update_rules.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr int kQuad = 4;  // elements a thread handles at once
constexpr std::int64_t kQuadsOfGranule = kSegmentGranule / kQuad;
static_assert(kQuadsOfGranule == kWarp, "a warp reads one granule");

using Quad = Pack<float, kQuad>;

__device__ inline Quad& quad_at(float* values, std::int64_t i) { return reinterpret_cast<Quad*>(values)[i]; }
__device__ inline Quad load_quad(const float* values, std::int64_t i) {
  return reinterpret_cast<const Quad*>(values)[i];
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

/// partials[block] = Σg² over its granules. In double no finite float overflows, so the sum is finite exactly where
/// every g is.
__global__ void __launch_bounds__(kThreads) gradient_partials_kernel(UpdateArena arena, double* partials) {
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * kWarps;
  double sum = 0;
  for (std::int64_t granule = grid_thread() / kWarp; granule < arena.granules; granule += warps) {
    if (arena.segments[arena.segment_of_granule[granule]].frozen) continue;
    const Quad g = load_quad(arena.gradient, granule * kQuadsOfGranule + threadIdx.x % kWarp);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) sum += static_cast<double>(g.v[k]) * static_cast<double>(g.v[k]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    gradient_total_kernel(int count, const double* partials, UpdateControl* control) {
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) store_gradient_statistics(sum, *control);
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

__device__ inline StepValues step_values(const UpdateGroup& group, bool decoupled) {
  return {group.learning_rate,
          decoupled ? 0.0f : group.weight_decay,
          decoupled ? group.weight_decay : 0.0f,
          group.beta1,
          group.beta2,
          group.epsilon,
          0.0f,
          0.0f};
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

__global__ void __launch_bounds__(kThreads)
    adam_kernel(UpdateArena arena, bool decoupled, const UpdateControl* control) {
  if (control->found_nonfinite) return;
  const float factor = control->gradient_factor, t = static_cast<float>(control->updates + 1);
  std::int32_t group = -1;
  StepValues s{};
  for (std::int64_t i = grid_thread(); i < arena.granules * kQuadsOfGranule; i += grid_threads()) {
    const UpdateSegment segment = arena.segments[arena.segment_of_granule[i / kQuadsOfGranule]];
    if (segment.frozen) continue;
    if (segment.group != group) {
      group = segment.group;
      s = step_values(arena.groups[group], decoupled);
      s.correction1 = bias_correction(s.beta1, t);
      s.correction2 = bias_correction(s.beta2, t);
    }
    const Quad gradient = load_quad(arena.gradient, i);
    Quad w = quad_at(arena.master, i), m = quad_at(arena.moment1, i), v = quad_at(arena.moment2, i);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      const float g = gradient.v[k] * factor + s.decay * w.v[k];
      m.v[k] = s.beta1 * m.v[k] + (1.0f - s.beta1) * g;
      v.v[k] = s.beta2 * v.v[k] + (1.0f - s.beta2) * g * g;
      const float divisor = sqrtf(v.v[k] * s.correction2) + s.epsilon;
      // Where nothing ever came (padding) and epsilon is 0, 0/0 counts as 0.
      const float step = divisor != 0 ? m.v[k] * s.correction1 / divisor : 0.0f;
      w.v[k] -= s.lr * (step + s.decoupled_decay * w.v[k]);
    }
    quad_at(arena.master, i) = w;
    quad_at(arena.moment1, i) = m;
    quad_at(arena.moment2, i) = v;
    if (arena.compute != nullptr && segment.compute_copy) store_compute(arena, i, w);
  }
}

__global__ void __launch_bounds__(kThreads) sgd_kernel(UpdateArena arena, bool nesterov, const UpdateControl* control) {
  if (control->found_nonfinite) return;
  const float factor = control->gradient_factor;
  for (std::int64_t i = grid_thread(); i < arena.granules * kQuadsOfGranule; i += grid_threads()) {
    const UpdateSegment segment = arena.segments[arena.segment_of_granule[i / kQuadsOfGranule]];
    if (segment.frozen) continue;
    const StepValues s = step_values(arena.groups[segment.group], false);
    const Quad gradient = load_quad(arena.gradient, i);
    Quad w = quad_at(arena.master, i), m{};
    if (arena.moment1 != nullptr) m = quad_at(arena.moment1, i);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      const float g = gradient.v[k] * factor + s.decay * w.v[k];
      m.v[k] = arena.moment1 != nullptr ? s.beta1 * m.v[k] + g : g;
      w.v[k] -= s.lr * (nesterov && arena.moment1 != nullptr ? g + s.beta1 * m.v[k] : m.v[k]);
    }
    quad_at(arena.master, i) = w;
    if (arena.moment1 != nullptr) quad_at(arena.moment1, i) = m;
    if (arena.compute != nullptr && segment.compute_copy) store_compute(arena, i, w);
  }
}

/// No thread writes found_nonfinite here, so that every block sees the same.
__global__ void finish_kernel(UpdateControl* control, std::int64_t elements, float* pending, float* current) {
  const bool keep = control->found_nonfinite != 0;
  for (std::int64_t i = grid_thread(); i < elements; i += grid_threads()) {
    if (keep) {
      pending[i] = current[i];
    } else {
      current[i] = pending[i];
    }
  }
  if (grid_thread() == 0) advance_update_control(*control);
}

}  // namespace

void gradient_statistics(const Exec& exec, const UpdateArena& arena, UpdateControl* control, Workspace workspace) {
  const std::int64_t blocks = gradient_statistics_blocks(arena.granules);
  double* partials = static_cast<double*>(workspace.data);
  gradient_partials_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(exec)>>>(arena, partials);
  check_launch("gradient_partials_kernel");
  gradient_total_kernel<<<1, kThreads, 0, stream_of(exec)>>>(static_cast<int>(blocks), partials, control);
  check_launch("gradient_total_kernel");
}

void optimizer_update(const Exec& exec, OptimizerKind kind, const UpdateArena& arena, const UpdateControl* control) {
  if (arena.granules <= 0) return;
  const unsigned blocks = stride_blocks(arena.granules * kQuadsOfGranule, kThreads);
  if (kind == OptimizerKind::adam || kind == OptimizerKind::adamw) {
    adam_kernel<<<blocks, kThreads, 0, stream_of(exec)>>>(arena, kind == OptimizerKind::adamw, control);
    check_launch("adam_kernel");
  } else {
    sgd_kernel<<<blocks, kThreads, 0, stream_of(exec)>>>(arena, kind == OptimizerKind::sgd_nesterov, control);
    check_launch("sgd_kernel");
  }
}

void finish_update(const Exec& exec, UpdateControl* control, std::int64_t buffer_elements, float* pending,
                   float* current) {
  finish_kernel<<<stride_blocks(buffer_elements), kMapThreads, 0, stream_of(exec)>>>(control, buffer_elements, pending,
                                                                                     current);
  check_launch("finish_kernel");
}

}  // namespace bantam::kernels::cuda
