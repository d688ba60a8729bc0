// Work of the update: the arena's slots, once in each of its two passes.
#include "bantam/kernels/contracts/update/update.h"

#include "bantam/kernels/meta/work.h"

namespace bantam::kernels::meta {
namespace {

std::int64_t elements_of(const NarrowGradients& narrow) {
  std::int64_t granules = 0;
  for (std::int32_t i = 0; i < narrow.count; ++i) granules += narrow.ranges[i].end - narrow.ranges[i].begin;
  return granules * kSpanGranule;
}

/// The gradients as they lie there: float32, or narrow.
std::int64_t gradients(const UpdateArena& arena) {
  const std::int64_t narrow = elements_of(arena.narrow);
  return 4 * (arena.granules * kSpanGranule - narrow) + bytes_of(narrow, arena.compute_dtype);
}

/// Parts are read, sums written, and read before where they accumulate.
std::int64_t sums(const PartialSums& partial) {
  std::int64_t bytes = 0;
  for (std::int32_t i = 0; i < partial.count; ++i) {
    const PartialSums::Array& array = partial.arrays[i];
    bytes += 4 * static_cast<std::int64_t>(array.elements) * (array.parts + 1 + (array.accumulate ? 1 : 0));
  }
  return bytes;
}

}  // namespace

void add_up_parts(const Exec& exec, const PartialSums& partial) {
  note(exec, "add_up_parts", {.bytes = sums(partial)});
}

void widen_gradients(const Exec& exec, float*, const NarrowGradients& narrow, DType dtype) {
  const std::int64_t elements = elements_of(narrow);
  note(exec, "widen_gradients", {.bytes = bytes_of(elements, dtype) + 4 * elements});
}

void begin_update(const Exec& exec, const UpdateArena& arena, const PartialSums& partial, UpdateControl*, Workspace) {
  note(exec, "begin_update",
       {.bytes = gradients(arena) + sums(partial) + 2 * static_cast<std::int64_t>(sizeof(UpdateControl)) +
                 unless_null(arena.rows, static_cast<std::int64_t>(sizeof(UpdateRow)))});
}

void apply_update(const Exec& exec, OptimizerKind, const UpdateArena& arena, const UpdateBuffers& buffers,
                  const UpdateControl*) {
  const std::int64_t elements = arena.granules * kSpanGranule, slot = 2 * 4 * elements;  // read and written
  note(exec, "apply_update",
       {.bytes = slot + gradients(arena) + unless_null(arena.moment1, slot) + unless_null(arena.moment2, slot) +
                 unless_null(arena.compute, bytes_of(elements, arena.compute_dtype)) + 2 * 4 * buffers.elements});
}

}  // namespace bantam::kernels::meta
