// The rings and tasks of the CPU's depthwise convolution between norms, by its plan.
#pragma once

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/thread_scratch.h"
#include "bantam/kernels/common/exec.h"
#include "bantam/kernels/depthwise/norm_depthwise_plan.h"

namespace bantam::kernels::cpu {

/// Rows of a part, three at a time, beside one of zeros.
class Ring {
 public:
  Ring(const NormDepthwisePlan& plan, std::int64_t lanes, float* memory)
      : data_(memory), block_(plan.block_vectors() * lanes), row_(plan.columns * lanes), lanes_(lanes) {
    std::fill_n(data_, plan.ring_floats(), 0.0f);
  }
  /// From one vector of channels to the next.
  std::int64_t block() const { return block_; }
  /// Where row `index` lies, from column `first` on.
  float* row(std::int64_t index, std::int64_t first) const { return data_ + index % 3 * row_ + first * lanes_; }
  float* zeros(std::int64_t first) const { return data_ + 3 * row_ + first * lanes_; }
  /// The same, or zeros for rows outside [0, rows).
  const float* row_or_zeros(std::int64_t index, std::int64_t rows, std::int64_t first) const {
    return index >= 0 && index < rows ? row(index, first) : zeros(first);
  }

 private:
  float* data_;
  std::int64_t block_, row_, lanes_;
};

/// The tag of the thread scratch that a thread's rings lie in.
struct RingScratch {};

/// Calls part(row part, first channel, channels, ring's memory) for the parts of a plan. `outside`: rings that do not
/// fit a thread's scratch.
template <class Part>
void for_each_part(const Exec& exec, const NormDepthwisePlan& plan, std::int64_t channels, float* outside,
                   Part&& part) {
  parallel_parts(plan.parts(), exec.threads, [&](std::int64_t i) {
    const std::int64_t c = i % plan.groups * plan.channels_each;
    part(i / plan.groups, c, std::min(plan.channels_each, channels - c),
         plan.outside_floats() > 0 ? outside + i * plan.outside_floats()
                                   : thread_scratch<RingScratch, kThreadRingFloats>());
  });
}

/// Calls rows(image, first row, end) for the tasks of a row part.
template <class Rows>
void for_each_task(const NormDepthwisePlan& plan, std::int64_t part, Rows&& rows) {
  const std::int64_t end = part_begin(plan.tasks, plan.row_parts, part + 1);
  for (std::int64_t task = part_begin(plan.tasks, plan.row_parts, part); task < end; ++task) {
    const std::int64_t chunk = task % plan.chunks;
    rows(task / plan.chunks, plan.chunk_begin(chunk), plan.chunk_begin(chunk + 1));
  }
}

}  // namespace bantam::kernels::cpu
