// The weight update on the CPU: granule by granule, each a vectorised loop of constant length.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/update/update.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/update/cpu/lamb.h"
#include "bantam/kernels/update/cpu/rules.h"
#include "bantam/kernels/update/update_rules.h"

namespace bantam::kernels::cpu {

void begin_update(const Exec& exec, const UpdateArena& arena, const PartialSums& partial, UpdateControl* control,
                  Workspace workspace) {
  (void)partial_sum_granules(arena, partial);  // throws where one belongs elsewhere
  add_up_parts(exec, partial);
  double* partials = static_cast<double*>(workspace.data);
  const std::int64_t parts = gradient_sum_parts(arena.granules);
  parallel_parts(parts, exec.threads, [&](std::int64_t part) {
    const std::int64_t end = std::min(arena.granules, (part + 1) * kGranulesOfCpuPartial);
    double sum = 0;
    float values[kSpanGranule];
    for (std::int64_t granule = part * kGranulesOfCpuPartial; granule < end; ++granule) {
      if (!moves(arena, arena.spans[arena.span_of_granule[granule]], control->updates + 1)) continue;
      sum += granule_sum(gradients_of(arena, granule, values));
    }
    partials[part] = sum;
  });
  double total = 0;
  for (std::int64_t part = 0; part < parts; ++part) total += partials[part];
  finish_begin_update(total, noted_learning_rate(arena), arena, *control);
}

void apply_update(const Exec& exec, OptimizerKind kind, const UpdateArena& arena, const UpdateBuffers& buffers,
                  const UpdateControl* control) {
  require_group_count(arena);
  const bool skip = control->found_nonfinite != 0;
  if (buffers.elements > 0)
    std::copy_n(skip ? buffers.current : buffers.next, buffers.elements, skip ? buffers.next : buffers.current);
  if (skip) return;
  if (kind == OptimizerKind::lamb) return lamb_update(exec, arena, *control);
  const MoveGranule move = rule_of(kind, arena.moment1 != nullptr);
  parallel_ranges(arena.granules, kGranulesOfCpuPartial, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    std::int32_t group = -1;
    StepValues values{};
    GranuleRoom room;
    for (std::int64_t granule = begin; granule < end; ++granule) {
      const ArenaSpan span = arena.spans[arena.span_of_granule[granule]];
      if (!moves(arena, span, control->updates)) continue;
      if (span.group != group) {
        group = span.group;
        values = step_values(kind, arena.groups[group], control->gradient_factor,
                             updates_of_group(arena, group, control->updates));
      }
      const Granule q = granule_at(arena, *control, granule, room);
      move(values, q);
      store_compute(arena, span, granule, q.w);
    }
  });
}

void clip_gradients(const Exec& exec, const UpdateArena& arena, const UpdateControl* control, float* out) {
  const float limit = gradient_limit(arena, control->gradient_factor);
  parallel_ranges(arena.granules, kGranulesOfCpuPartial, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    float values[kSpanGranule];
    for (std::int64_t granule = begin; granule < end; ++granule)
      std::copy_n(gradients_within(arena, granule, limit, values), kSpanGranule, out + granule * kSpanGranule);
  });
}

}  // namespace bantam::kernels::cpu
