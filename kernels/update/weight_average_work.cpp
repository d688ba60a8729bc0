// Work of averaging weights: an update's share of it, where an average moves every few updates.
#include "bantam/kernels/common/work.h"
#include "bantam/kernels/update/weight_average.h"

namespace bantam::kernels::work {

void move_average(const Exec& exec, const AverageRule& rule, const AverageArena& arena, const UpdateControl*) {
  // The value is read, the average read and written.
  note(exec, "move_average", {.bytes = 3 * 4 * (arena.elements + arena.buffer_elements) / rule.every});
}

void swap_values(const Exec& exec, std::int64_t elements, float*, float*) {
  note(exec, "swap_values", {.bytes = 4 * 4 * elements});
}

}  // namespace bantam::kernels::work
