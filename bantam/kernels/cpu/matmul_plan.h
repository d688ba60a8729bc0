// How a CPU matrix product is cut into parts: by shape and type only, so that neither bits nor bytes depend on threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/matmul.h"
#include "bantam/kernels/workspace_layout.h"

namespace bantam::kernels::cpu {

/// The cut of C into rows × columns × pieces of the sum. Products of half types also go through float tiles, one set a
/// part.
struct MatmulPlan {
  static constexpr std::int64_t kTile = 256;  ///< edge of a widened tile: three of them fit a second-level cache
  std::int64_t row_parts = 1, rows = 0;       ///< rows of C in a part (the last has fewer)
  std::int64_t column_parts = 1, columns = 0;
  std::int64_t depth_parts = 1, depth = 0;  ///< more than one: partial sums in workspace, added in order
  std::size_t partial_bytes = 0;            ///< all partial sums
  std::size_t slot_bytes = 0;               ///< the tiles of one part

  std::int64_t parts() const { return row_parts * column_parts * depth_parts; }
  std::size_t workspace_bytes() const { return partial_bytes + static_cast<std::size_t>(parts()) * slot_bytes; }
};

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// At most 32 parts of at least about 2 million operations; first rows and columns of C are cut (not below 64), then
/// the sum.
inline MatmulPlan plan_matmul(const MatmulShape& s, DType dtype, DType out_dtype) {
  constexpr std::int64_t kMaxParts = 32, kMinOperations = 2'000'000, kMinEdge = 64, kMinDepth = 512;
  constexpr std::int64_t kMaxPartialFloats = 4 << 20;
  MatmulPlan plan;
  const std::int64_t wanted = std::clamp<std::int64_t>(matmul_flops(s) / kMinOperations, 1, kMaxParts);
  const std::int64_t row_choices = std::max<std::int64_t>(1, s.m / kMinEdge);
  const std::int64_t column_choices = std::max<std::int64_t>(1, s.n / kMinEdge);
  if (s.m >= s.n) {
    plan.row_parts = std::min(row_choices, wanted);
    plan.column_parts = std::min(column_choices, std::max<std::int64_t>(1, wanted / plan.row_parts));
  } else {
    plan.column_parts = std::min(column_choices, wanted);
    plan.row_parts = std::min(row_choices, std::max<std::int64_t>(1, wanted / plan.column_parts));
  }
  const std::int64_t elements = std::max<std::int64_t>(1, s.m * s.n);
  const std::int64_t splits =
      std::min({wanted / (plan.row_parts * plan.column_parts), s.k / kMinDepth, kMaxPartialFloats / elements});
  plan.depth = ceil_div(s.k, std::max<std::int64_t>(1, splits));
  plan.depth_parts = std::max<std::int64_t>(1, s.k > 0 ? ceil_div(s.k, plan.depth) : 1);
  plan.rows = ceil_div(s.m, plan.row_parts);
  plan.columns = ceil_div(s.n, plan.column_parts);
  plan.row_parts = plan.rows > 0 ? ceil_div(s.m, plan.rows) : 1;
  plan.column_parts = plan.columns > 0 ? ceil_div(s.n, plan.columns) : 1;
  if (plan.depth_parts > 1) plan.partial_bytes = aligned_bytes(plan.depth_parts * elements * 4);
  if (is_half(dtype)) {
    const std::int64_t m = std::min(plan.rows, MatmulPlan::kTile), n = std::min(plan.columns, MatmulPlan::kTile);
    const std::int64_t k = std::min(plan.depth, MatmulPlan::kTile);
    const bool result_tile = is_half(out_dtype) && plan.depth_parts == 1;
    plan.slot_bytes =
        aligned_bytes(m * k * 4) + aligned_bytes(k * n * 4) + (result_tile ? aligned_bytes(m * n * 4) : 0);
  }
  return plan;
}

}  // namespace bantam::kernels::cpu
