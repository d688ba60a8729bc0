// Work of sums of a tree over replicas: each term is read once, the sum written.
#include "bantam/kernels/common/work.h"
#include "bantam/kernels/update/tree_sum.h"

namespace bantam::kernels::work {

void tree_sum(const Exec& exec, DType dtype, std::int64_t elements, const TreeTerms& terms, double, void*) {
  note(exec, "tree_sum", {.bytes = (terms.count + 1) * static_cast<std::int64_t>(size_of(dtype)) * elements});
}

void narrow_tree_sum(const Exec& exec, std::int64_t elements, const TreeTerms& terms, DType to, void*) {
  note(exec, "narrow_tree_sum", {.bytes = (4 * terms.count + static_cast<std::int64_t>(size_of(to))) * elements});
}

void store_at_slot(const Exec& exec, std::int64_t count, const double*, const std::int32_t*, double*) {
  note(exec, "store_at_slot", {.bytes = 2 * 8 * count});
}

}  // namespace bantam::kernels::work
