// How the CPU's depthwise convolution between norms is cut up, and its workspace: by shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/partial_sums.h"
#include "bantam/kernels/depthwise/norm_depthwise_parts.h"

namespace bantam::kernels::cpu {

/// A ring holds what a row of results needs of the rows it reads: three, and one of zeros for those outside the image.
inline constexpr std::int64_t kRingSlots = 4;
/// Zeros on each side of a ring's row of gradients: what any padding makes the input's columns reach.
inline constexpr std::int64_t kGradientMargin = 2;
/// Most row parts, each with partial sums of its own.
inline constexpr std::int64_t kMaxRowParts = 32;
/// A part's ring lies in its thread's scratch, warm in the second-level cache, where it has no more floats than this.
inline constexpr std::int64_t kThreadRingFloats = 36 << 10;

/// Rows of every image in chunks, (image, chunk) tasks in row parts, channels in groups. A part is a row part of a
/// group: it has a ring of its own, and one set of partial sums.
struct NormDepthwisePlan {
  std::int64_t rows = 0;     ///< of an image: of y in forward, of x in backward
  std::int64_t columns = 0;  ///< of a row in the ring, with its zeros
  std::int64_t chunks = 1, tasks = 0, row_parts = 1;
  std::int64_t channels_each = 0, groups = 1;

  std::int64_t parts() const { return row_parts * groups; }
  /// Vectors of a ring from one vector of channels to the next: an odd number, so that they spread over a cache's sets.
  std::int64_t block_vectors() const { return kRingSlots * columns + 1; }
  std::int64_t ring_floats() const { return block_vectors() * channels_each; }
  /// Floats of workspace for the ring of each part.
  std::int64_t outside_floats() const { return ring_floats() > kThreadRingFloats ? ring_floats() : 0; }
  std::int64_t chunk_begin(std::int64_t chunk) const { return part_begin(rows, chunks, chunk); }
};

/// Groups of channels as large as fit the thread's ring, but no fewer than 64; then row parts, from chunks of at
/// least 14 rows: the first two of a chunk are made for it alone.
inline NormDepthwisePlan plan_rows(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t channels) {
  constexpr std::int64_t kLeastRows = 14, kLeastChannels = 64;
  NormDepthwisePlan plan{.rows = rows, .columns = columns};
  const std::int64_t fitting =
      std::max(kLeastChannels, kThreadRingFloats / (kRingSlots * columns + 1) / kLeastChannels * kLeastChannels);
  plan.groups = std::max<std::int64_t>(1, (channels + fitting - 1) / fitting);
  plan.channels_each =
      ((channels + plan.groups - 1) / plan.groups + kLeastChannels - 1) / kLeastChannels * kLeastChannels;
  plan.channels_each = std::min(plan.channels_each, channels);
  plan.groups = (channels + plan.channels_each - 1) / plan.channels_each;
  const std::int64_t wanted = std::max<std::int64_t>(1, kMaxRowParts / plan.groups / std::max<std::int64_t>(batch, 1));
  plan.chunks = std::clamp<std::int64_t>(rows / kLeastRows, 1, wanted);
  plan.tasks = batch * plan.chunks;
  plan.row_parts = std::clamp<std::int64_t>(plan.tasks, 1, kMaxRowParts);
  return plan;
}

inline NormDepthwisePlan plan_norm_forward(const DepthwiseConv2dShape& s) {
  return plan_rows(s.batch, s.out_h(), s.in_w + s.pad_left + s.pad_right, s.channels);
}
inline NormDepthwisePlan plan_norm_backward(const DepthwiseConv2dShape& s) {
  return plan_rows(s.batch, s.in_h, s.out_w() + 2 * kGradientMargin, s.channels);
}

}  // namespace bantam::kernels::cpu
