// The weights' average on CUDA: one pass over weights and running statistics, which ends at once where an update does
// not move it; and the exchange of two arrays.
#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/update/cuda/quads.cuh"
#include "bantam/kernels/update/pruning_rules.h"
#include "bantam/kernels/update/weight_average.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ void move(std::int64_t elements, const float* values, float* average, float share) {
  for (std::int64_t quad = grid_thread(); quad < elements / kQuad; quad += grid_threads()) {
    const Quad w = load_quad(values, quad);
    Quad a = load_quad(average, quad);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) a.v[k] = averaged(a.v[k], w.v[k], share);
    quad_at(average, quad) = a;
  }
}

__global__ void __launch_bounds__(kThreads)
    move_average_kernel(AverageRule rule, AverageArena arena, const UpdateControl* control) {
  wait_then_let_next_start();  // for weights, and control
  const float share = average_share(rule, control->updates);
  if (control->found_nonfinite != 0 || share == 0.0f) return;
  move(arena.elements, arena.weights, arena.average, share);
  move(arena.buffer_elements, arena.buffers, arena.buffer_average, share);
}

__global__ void __launch_bounds__(kThreads) swap_values_kernel(std::int64_t quads, float* a, float* b) {
  wait_then_let_next_start();
  for (std::int64_t quad = grid_thread(); quad < quads; quad += grid_threads()) {
    const Quad of_a = load_quad(a, quad), of_b = load_quad(b, quad);
    quad_at(a, quad) = of_b;
    quad_at(b, quad) = of_a;
  }
}

}  // namespace

void move_average(const Exec& exec, const AverageRule& rule, const AverageArena& arena, const UpdateControl* control) {
  const std::int64_t quads = std::max(arena.elements, arena.buffer_elements) / kQuad;
  if (quads <= 0) return;
  launch_early(exec, move_average_kernel, dim3(stride_blocks(quads, kThreads)), dim3(kThreads), rule, arena, control);
}

void swap_values(const Exec& exec, std::int64_t elements, float* a, float* b) {
  const std::int64_t quads = elements / kQuad;
  if (quads <= 0) return;
  launch_early(exec, swap_values_kernel, dim3(stride_blocks(quads, kThreads)), dim3(kThreads), quads, a, b);
}

}  // namespace bantam::kernels::cuda
