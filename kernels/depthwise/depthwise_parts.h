// How depthwise convolutions are cut up, for planning and for kernels alike: by shape and target only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/depthwise/depthwise_conv2d.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

/// 3x3, no dilation, one filter a channel, both strides 1 or both 2: the shapes that CUDA walks in strips.
inline bool fits_strips(const DepthwiseConv2dShape& s) {
  return s.kernel_h == 3 && s.kernel_w == 3 && s.dilation_h == 1 && s.dilation_w == 1 && s.multiplier == 1 &&
         s.stride_h == s.stride_w && s.stride_h <= 2;
}

/// 5x5 kernels at stride 1 or 2 and 7x7 ones at stride 1, no dilation, one filter a channel: CUDA walks these in strips
/// too, with weights in shared memory.
inline bool fits_wide_strips(const DepthwiseConv2dShape& s) {
  return s.kernel_h == s.kernel_w && s.dilation_h == 1 && s.dilation_w == 1 && s.multiplier == 1 &&
         s.stride_h == s.stride_w && ((s.kernel_h == 5 && s.stride_h <= 2) || (s.kernel_h == 7 && s.stride_h == 1));
}

/// Channels that a thread of a strip keeps (one, where addresses are not aligned).
constexpr std::int64_t strip_channels(std::int64_t channels) { return channels % 4 == 0 ? 4 : 1; }

/// Rows x columns of every image cut into tasks: strips of `columns_each` columns, chunks of `rows_each` rows.
struct StripCut {
  std::int64_t rows = 0, rows_each = 1, columns_each = 1, chunks = 1, strips = 1, tasks = 0;
};

/// A cut of batch x rows x columns positions into strips, each in so many chunks, or fewer.
inline StripCut cut_chunks(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t columns_each,
                           std::int64_t chunks) {
  StripCut cut{.rows = rows, .columns_each = columns_each};
  cut.strips = std::max<std::int64_t>((columns + columns_each - 1) / columns_each, 1);
  cut.rows_each = std::max<std::int64_t>((rows + chunks - 1) / chunks, 1);
  cut.chunks = std::max<std::int64_t>((rows + cut.rows_each - 1) / cut.rows_each, 1);
  cut.tasks = batch * cut.strips * cut.chunks;
  return cut;
}

/// How far a cut goes on: to so many threads, with at least so many rows a chunk, which reads the rows around it too.
struct StripGoal {
  std::int64_t threads = std::int64_t{1} << 18, least_rows = 14;
};

/// A cut into strips with enough chunks to keep a large GPU busy.
inline StripCut cut_strips(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t columns_each,
                           std::int64_t packs, StripGoal goal = {}) {
  const StripCut whole = cut_chunks(batch, rows, columns, columns_each, 1);
  const std::int64_t threads = std::max<std::int64_t>(whole.tasks * packs, 1);
  const std::int64_t chunks = std::clamp<std::int64_t>((goal.threads + threads - 1) / threads, 1,
                                                       std::max<std::int64_t>(rows / goal.least_rows, 1));
  return cut_chunks(batch, rows, columns, columns_each, chunks);
}

/// Sums over the positions of y are made part by part: part p has the tasks [p·tasks_each, (p + 1)·tasks_each).
struct StripParts {
  StripCut cut;
  std::int64_t tasks_each = 1, parts = 1;
};

/// Most threads of a block of strips, and most of them that share a task.
inline constexpr std::int64_t kStripThreads = 128, kStripLanes = 32;
/// Threads that share a task, a pack of channels each: the number that leaves the fewest threads of all blocks without
/// work; of equal ones the largest, since neighbours read neighbouring memory.
constexpr std::int64_t strip_lanes(std::int64_t packs, std::int64_t most = kStripLanes) {
  constexpr std::int64_t kLeast = 12;
  const auto columns = [packs](std::int64_t lanes) { return (packs + lanes - 1) / lanes; };
  std::int64_t best = std::clamp<std::int64_t>(packs, 1, most);
  for (std::int64_t lanes = (best - 1) / 4 * 4; lanes >= kLeast; lanes -= 4)
    if (kStripThreads / lanes * columns(best) > kStripThreads / best * columns(lanes)) best = lanes;
  return best;
}

/// Parts such that all blocks are of about equal work and the reference GPU has `each` blocks on every one
/// at once, and no second round; `sums` floats a channel and part stay below 8 MiB. `pack`: channels of a thread.
inline StripParts strip_parts(const StripCut& cut, std::int64_t channels, std::int64_t pack, std::int64_t sums,
                              std::int64_t each) {
  constexpr std::int64_t kMostFloats = std::int64_t{1} << 21;
  const std::int64_t blocks = kReferenceMultiprocessors * each;
  const std::int64_t packs = channels / pack, lanes = strip_lanes(packs);
  const std::int64_t at_once = kStripThreads / lanes, columns = (packs + lanes - 1) / lanes;
  const std::int64_t most = std::max<std::int64_t>(std::min(blocks / columns, kMostFloats / (sums * channels)), 1);
  StripParts parts{.cut = cut};
  parts.tasks_each = std::max<std::int64_t>((cut.tasks + most * at_once - 1) / (most * at_once), 1) * at_once;
  parts.parts = std::max<std::int64_t>((cut.tasks + parts.tasks_each - 1) / parts.tasks_each, 1);
  return parts;
}

/// Positions of every image that are cut into strips; what a chunk computes around its own rows costs as many as
/// `rows_around`.
struct StripArea {
  std::int64_t batch, rows, columns, columns_each, rows_around;
};

/// Parts of the cut whose number of chunks takes the fewest rows until the last block is done.
inline StripParts balanced_parts(const StripArea& area, std::int64_t channels, std::int64_t pack, std::int64_t sums,
                                 std::int64_t each) {
  const auto with_chunks = [&](std::int64_t chunks) {
    return strip_parts(cut_chunks(area.batch, area.rows, area.columns, area.columns_each, chunks), channels, pack, sums,
                       each);
  };
  const auto time = [&](const StripParts& parts) {
    return parts.tasks_each * (parts.cut.rows_each + area.rows_around);
  };
  StripParts best = with_chunks(1);
  for (std::int64_t chunks = 2; chunks <= area.rows / 3; ++chunks)
    if (const StripParts parts = with_chunks(chunks); time(parts) < time(best)) best = parts;
  return best;
}

/// The positions of y, in forward and in the weight gradient.
inline StripArea output_area(const DepthwiseConv2dShape& s) {
  const bool one = s.stride_h == 1;
  return {s.batch, s.out_h(), s.out_w(), one ? 4 : 2, one ? 2 : 1};
}

/// The weight gradient's cut of the positions of dy.
inline StripParts grad_weight_strips(const DepthwiseConv2dShape& s) {
  return balanced_parts(output_area(s), s.channels, strip_channels(s.channels), 9, s.stride_h == 1 ? 3 : 4);
}

/// Columns of a wide strip: feature maps are 56, 28, 14 and 7 wide.
inline constexpr std::int64_t kWideColumns = 7;

/// The cut of dy's positions for the weight gradient of a wide kernel: one channel a thread, chunks as tall as may be.
inline StripParts wide_grad_weight_strips(const DepthwiseConv2dShape& s) {
  const StripCut cut = cut_strips(s.batch, s.out_h(), s.out_w(), kWideColumns, s.channels,
                                  {.threads = std::int64_t{1} << 15, .least_rows = 7});
  return strip_parts(cut, s.channels, 1, s.kernel_h * s.kernel_w, s.kernel_h == 5 ? 4 : 3);
}

/// Parts that the rows (batch·out_h) of dy are cut into; at least 1. Each computes partial sums for all of w; parts are
/// added in order.
inline std::int64_t depthwise_grad_weight_parts(const DepthwiseConv2dShape& shape, DeviceKind target) {
  const bool cuda = target == DeviceKind::cuda;
  if (cuda && fits_strips(shape) && shape.w_elements() > 0) return grad_weight_strips(shape).parts;
  if (cuda && fits_wide_strips(shape) && shape.w_elements() > 0) return wide_grad_weight_strips(shape).parts;
  const std::int64_t rows = shape.batch * shape.out_h();
  const std::int64_t by_work = shape.y_elements() / (cuda ? 8192 : 16384);
  const std::int64_t by_memory = (std::int64_t{1} << 20) / std::max<std::int64_t>(shape.w_elements(), 1);
  return std::clamp<std::int64_t>(std::min({by_work, rows, by_memory}), 1, cuda ? 256 : 64);
}

}  // namespace bantam::kernels
