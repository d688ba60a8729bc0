// The terms of a tree's sum.
#include "bantam/kernels/update/tree_sum.h"

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::kernels {

void TreeTerms::add(const void* term) {
  if (count == kMost) throw Error(fmt::format("tree_sum: more than {} terms", kMost));
  terms[count++] = term;
}

void check_tree_sum(DType dtype, const TreeTerms& terms) {
  if (terms.count < 1) throw Error("tree_sum: no terms");
  if (dtype != DType::float32 && dtype != DType::float64)
    throw Error(fmt::format("tree_sum: expected float32 or float64, got {}", to_string(dtype)));
}

void check_narrow_tree_sum(const TreeTerms& terms, DType to) {
  if (terms.count < 1) throw Error("narrow_tree_sum: no terms");
  if (to != DType::float32 && to != DType::float16)
    throw Error(fmt::format("narrow_tree_sum: expected float32 or float16, got {}", to_string(to)));
}

}  // namespace bantam::kernels
