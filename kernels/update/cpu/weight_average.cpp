// The weights' average on the CPU.
#include "bantam/kernels/update/weight_average.h"

#include <utility>

#include "bantam/base/parallel.h"
#include "bantam/kernels/update/pruning_rules.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kGrain = 64 * kWeightBlockSize;

void move(const Exec& exec, std::int64_t elements, const float* values, float* average, float share) {
  parallel_ranges(elements, kGrain, exec.threads, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) average[i] = averaged(average[i], values[i], share);
  });
}

}  // namespace

void move_average(const Exec& exec, const AverageRule& rule, const AverageArena& arena, const UpdateControl* control) {
  const float share = average_share(rule, control->updates);
  if (control->found_nonfinite != 0 || share == 0.0f) return;
  move(exec, arena.elements, arena.weights, arena.average, share);
  move(exec, arena.buffer_elements, arena.buffers, arena.buffer_average, share);
}

void swap_values(const Exec& exec, std::int64_t elements, float* a, float* b) {
  parallel_ranges(elements, kGrain, exec.threads, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) std::swap(a[i], b[i]);
  });
}

}  // namespace bantam::kernels::cpu
