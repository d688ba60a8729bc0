// How our own weight gradient on the CPU is cut into parts, and its workspace: by shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/conv/window_conv.h"

namespace bantam::kernels::cpu {

/// dw = Σ over pixels of (patch of x)ᵀ · dy, a chunk of output rows at a time. A part computes the partial sum of some
/// chunks for some filters. Workspace: partial sums in panels of filters, rows of x (a slot for each part of the
/// chunks, or, where filters are cut, all chunks, which parts share), and each part's panel of dy.
struct WeightGradientPlan {
  static constexpr std::int64_t kPanel = 32;  ///< filters of the widest panel

  std::int64_t rows = 1;    ///< output rows of a chunk
  std::int64_t chunks = 0;  ///< in all
  std::int64_t chunks_per_part = 1;
  std::int64_t row_parts = 0;
  std::int64_t filters = 0;  ///< of a part, a multiple of kPanel but for the last
  std::int64_t filter_parts = 1;
  std::size_t partial_bytes = 0;  ///< of a part of the rows
  std::size_t padded_bytes = 0;   ///< of a slot: rows of x
  std::size_t table_bytes = 0;    ///< of a slot: where each output row begins to read
  std::size_t panel_bytes = 0;    ///< of a part: dy of a chunk, some filters of it

  bool shares_rows() const { return filter_parts > 1; }
  std::int64_t parts() const { return row_parts * filter_parts; }
  std::size_t slot_bytes() const { return padded_bytes + table_bytes; }
  std::size_t slots_bytes() const {
    return static_cast<std::size_t>(shares_rows() ? chunks : row_parts) * slot_bytes();
  }
  std::size_t partials_bytes() const { return static_cast<std::size_t>(row_parts) * partial_bytes; }
  std::size_t workspace_bytes() const {
    return partials_bytes() + slots_bytes() + static_cast<std::size_t>(parts()) * panel_bytes;
  }
};

/// Chunks of about 256 pixels, whose panel of dy fits a first-level cache. About 16 parts of at least about 2 million
/// operations: of the rows while partial sums stay small, else of the filters too, where x is small enough to share.
inline WeightGradientPlan plan_weight_gradient(const WindowConv& s) {
  constexpr std::int64_t kPixels = 256, kParts = 16, kMinOperations = 2'000'000;
  constexpr std::int64_t kCheapPartials = 4 << 20, kMostPartials = 40 << 20, kMostShared = 24 << 20;
  WeightGradientPlan plan;
  const std::int64_t total = s.batch * s.out_h;
  if (total * s.out_w == 0) return plan;
  const std::int64_t most_rows = std::max<std::int64_t>(1, kPixels / s.out_w);
  plan.rows = ceil_div(total, ceil_div(total, most_rows));
  plan.chunks = ceil_div(total, plan.rows);
  plan.table_bytes = aligned_bytes(plan.rows * static_cast<std::int64_t>(sizeof(const float*)));
  if (s.pads) {
    const std::int64_t images = std::min(s.batch, plan.rows / s.out_h + 2);  // that a chunk's rows may be of
    plan.padded_bytes = aligned_bytes((plan.rows * s.stride_h + images * s.read_h()) * s.padded_w * s.in_channels * 4);
  }
  plan.panel_bytes = aligned_bytes(plan.rows * s.out_w * WeightGradientPlan::kPanel * 4);
  plan.partial_bytes = aligned_bytes(ceil_div(s.filters, 16) * 16 * s.depth() * 4);
  const std::int64_t wanted = std::clamp<std::int64_t>(s.flops() / kMinOperations, 1, kParts),
                     partial = static_cast<std::int64_t>(plan.partial_bytes),
                     cheap = std::max<std::int64_t>(1, kCheapPartials / partial),
                     panels = ceil_div(s.filters, WeightGradientPlan::kPanel);
  const bool shares =
      wanted > cheap && panels > 1 && plan.chunks * static_cast<std::int64_t>(plan.slot_bytes()) <= kMostShared;
  const std::int64_t filter_parts = shares ? std::min(panels, ceil_div(wanted, cheap)) : 1;
  plan.filters = ceil_div(panels, filter_parts) * WeightGradientPlan::kPanel;
  plan.filter_parts = ceil_div(s.filters, plan.filters);
  const std::int64_t most = plan.shares_rows() ? cheap : std::max<std::int64_t>(2, kMostPartials / partial);
  plan.chunks_per_part = ceil_div(plan.chunks, std::min(most, ceil_div(wanted, plan.filter_parts)));
  plan.row_parts = ceil_div(plan.chunks, plan.chunks_per_part);
  return plan;
}

}  // namespace bantam::kernels::cpu
