// Work of pruning at an update that changes no mask: masks are read, weights read and written, copies written.
#include "bantam/kernels/common/work.h"
#include "bantam/kernels/update/pruning.h"

namespace bantam::kernels::work {

void prune_weights(const Exec& exec, const PruneRule&, const PruneArena& arena, const UpdateControl*) {
  const std::int64_t elements = arena.weight_blocks * kWeightBlockSize;
  note(exec, "prune_weights",
       {.bytes = elements + 2 * 4 * elements + unless_null(arena.compute, bytes_of(elements, arena.compute_dtype))});
}

}  // namespace bantam::kernels::work
