// How a CPU convolution with packed weights is cut into parts, and its workspace: by shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/conv/window_conv.h"

namespace bantam::kernels::cpu {

/// Whether inference packs weights once: else conv2d_forward runs, then the epilogue.
inline bool packs_weights(const Conv2dShape& s, DType dtype) { return dtype == DType::float32 && s.groups == 1; }

/// A part computes some rows of the output (of all images, one after the other) for some of its columns (channels), a
/// chunk of rows at a time. Workspace: a slot for each part of the rows (a chunk's rows of x, where they are padded),
/// then the edges of all parts.
struct PackedPlan {
  static constexpr std::int64_t kDepth = 256;        ///< terms of the sum that are added at a time
  static constexpr std::int64_t kColumnGroup = 192;  ///< channels whose weights of kDepth stay in a cache
  static constexpr std::int64_t kPanel = 32;         ///< channels of the widest panel of weights

  std::int64_t rows = 1;    ///< output rows of a chunk
  std::int64_t chunks = 1;  ///< of a part
  std::int64_t row_parts = 0;
  std::int64_t columns = 0;  ///< channels of a part, a multiple of kPanel but for the last
  std::int64_t column_parts = 0;
  std::int64_t padded_row = 0;   ///< floats of a row of x with its padding
  std::size_t padded_bytes = 0;  ///< of a slot: rows of x
  std::size_t table_bytes = 0;   ///< of a slot: where each output row begins to read
  std::size_t edge_bytes = 0;    ///< of a part: the last panel, where it is narrower than the widest

  std::int64_t parts() const { return row_parts * column_parts; }
  std::size_t slot_bytes() const { return padded_bytes + table_bytes; }
  std::size_t slots_bytes() const { return static_cast<std::size_t>(row_parts) * slot_bytes(); }
  std::size_t workspace_bytes() const { return slots_bytes() + static_cast<std::size_t>(parts()) * edge_bytes; }
};

/// Chunks of about 384 pixels, whose sums of a column group fit a second-level cache, in at most 32 parts; channels so
/// that there are about 16 parts, of at least about 1 million operations.
inline PackedPlan plan_packed(const WindowConv& s) {
  constexpr std::int64_t kPixels = 384, kParts = 16, kMostRowParts = 32, kMinOperations = 1'000'000;
  PackedPlan plan;
  if (s.batch * s.out_h * s.out_w * s.filters == 0) return plan;
  const std::int64_t total = s.batch * s.out_h;
  const std::int64_t most_rows = std::max<std::int64_t>(1, kPixels / s.out_w);
  plan.row_parts = ceil_div(total, most_rows);
  plan.rows = ceil_div(total, plan.row_parts);
  plan.chunks = ceil_div(ceil_div(total, plan.rows), kMostRowParts);
  plan.row_parts = ceil_div(total, plan.rows * plan.chunks);
  const std::int64_t panels = ceil_div(s.filters, PackedPlan::kPanel);
  const std::int64_t worth = std::max<std::int64_t>(1, s.flops() / plan.row_parts / kMinOperations);
  const std::int64_t wanted = std::min({ceil_div(kParts, plan.row_parts), panels, worth});
  plan.columns = ceil_div(panels, wanted) * PackedPlan::kPanel;
  plan.column_parts = ceil_div(s.filters, plan.columns);
  plan.padded_row = (s.pads ? s.padded_w : s.in_w) * s.in_channels;
  if (s.pads) {
    const std::int64_t images = std::min(s.batch, plan.rows / s.out_h + 2);  // that a part's rows may be of
    const std::int64_t rows = plan.rows * s.stride_h + images * s.read_h();
    plan.padded_bytes = aligned_bytes(rows * plan.padded_row * 4);
  }
  plan.table_bytes = aligned_bytes(plan.rows * static_cast<std::int64_t>(sizeof(const float*)));
  if (s.filters % PackedPlan::kPanel != 0)
    plan.edge_bytes = aligned_bytes(std::min(PackedPlan::kDepth, s.depth()) * PackedPlan::kPanel * 4);
  return plan;
}

}  // namespace bantam::kernels::cpu
