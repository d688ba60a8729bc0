// How a CPU matrix product is cut into parts: by shape and type only, so that neither bits nor bytes depend on threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/matmul/matmul.h"

namespace bantam::kernels::cpu {

/// The cut of C into rows × columns × splits of the sum (split-K). Products of half types also go through float tiles,
/// one set a part.
struct MatmulPlan {
  static constexpr std::int64_t kTile = 256;  ///< edge of a widened tile: three of them fit a second-level cache
  static constexpr std::int64_t kRowStep = 12, kColumnStep = 32;  ///< gemm's tiles: parts are whole ones
  std::int64_t row_parts = 1, rows = 0;                           ///< rows of C in a part (the last has fewer)
  std::int64_t column_parts = 1, columns = 0;
  std::int64_t depth_parts = 1, depth = 0;  ///< more than one: partial sums in workspace, added in order
  std::size_t partial_bytes = 0;            ///< all partial sums
  std::size_t slot_bytes = 0;               ///< the tiles of one part

  std::int64_t parts() const { return row_parts * column_parts * depth_parts; }
  std::size_t workspace_bytes() const { return partial_bytes + static_cast<std::size_t>(parts()) * slot_bytes; }
};

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
/// `a` rounded up to a multiple of `step`.
inline std::int64_t whole(std::int64_t a, std::int64_t step) { return ceil_div(a, step) * step; }

/// At most 32 parts of at least about 2 million operations. First rows and columns of C are cut: into blocks so large
/// that packing (of B once for each block of rows, of A for each block of columns) costs little beside the product.
/// Then the sum, where there would be fewer than 8 parts.
inline MatmulPlan plan_matmul(const MatmulShape& s, DType dtype, DType out_dtype) {
  constexpr std::int64_t kMaxParts = 32, kMinOperations = 2'000'000, kMinRows = 192, kMinColumns = 128;
  constexpr std::int64_t kMinDepth = 512, kEnoughParts = 8;
  constexpr std::int64_t kMaxPartialFloats = 4 << 20;
  MatmulPlan plan;
  const std::int64_t wanted = std::clamp<std::int64_t>(matmul_flops(s) / kMinOperations, 1, kMaxParts);
  const std::int64_t row_choices = std::max<std::int64_t>(1, s.m / kMinRows);
  const std::int64_t column_choices = std::max<std::int64_t>(1, s.n / kMinColumns);
  if (s.m >= s.n) {
    plan.row_parts = std::min(row_choices, wanted);
    plan.column_parts = std::min(column_choices, std::max<std::int64_t>(1, wanted / plan.row_parts));
  } else {
    plan.column_parts = std::min(column_choices, wanted);
    plan.row_parts = std::min(row_choices, std::max<std::int64_t>(1, wanted / plan.column_parts));
  }
  const std::int64_t elements = std::max<std::int64_t>(1, s.m * s.n), tiles = plan.row_parts * plan.column_parts;
  const std::int64_t splits =
      tiles >= kEnoughParts ? 1 : std::min({wanted / tiles, s.k / kMinDepth, kMaxPartialFloats / elements});
  plan.depth = splits > 1 ? whole(ceil_div(s.k, splits), MatmulPlan::kTile) : s.k;
  plan.depth_parts = std::max<std::int64_t>(1, s.k > 0 ? ceil_div(s.k, plan.depth) : 1);
  plan.rows = std::min(s.m, whole(ceil_div(s.m, plan.row_parts), MatmulPlan::kRowStep));
  plan.columns = std::min(s.n, whole(ceil_div(s.n, plan.column_parts), MatmulPlan::kColumnStep));
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
