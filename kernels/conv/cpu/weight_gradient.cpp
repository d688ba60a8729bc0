// Weight gradients: values of patches, read where they lie, times panels of dy, summed over pixels in registers; then
// partial sums in order.
#include "bantam/kernels/conv/cpu/weight_gradient.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/conv/cpu/packed_panels.h"
#include "bantam/kernels/conv/cpu/window_rows.h"

namespace bantam::kernels::cpu {
namespace {

/// The facts that all parts of a call share: shape, plan, kernels, operands and workspace.
struct Call {
  const WindowConv& s;
  WeightGradientPlan plan;
  const PanelKernels& kernels;
  const WeightGradient& operands;
  char* workspace;

  float* partial(std::int64_t row_part) const {
    return reinterpret_cast<float*>(workspace + static_cast<std::size_t>(row_part) * plan.partial_bytes);
  }
  RowRange rows(std::int64_t chunk) const {
    const std::int64_t first = chunk * plan.rows;
    return {first, std::min(plan.rows, s.batch * s.out_h - first)};
  }
};

/// Rows of x of one chunk.
struct Slot {
  Slot(const Call& call, std::int64_t index) {
    char* const begin =
        call.workspace + call.plan.partials_bytes() + static_cast<std::size_t>(index) * call.plan.slot_bytes();
    padded = reinterpret_cast<float*>(begin);
    table = reinterpret_cast<const float**>(begin + call.plan.padded_bytes);
  }
  float* padded;
  const float** table;
};

void fill(const Call& call, std::int64_t chunk, const Slot& slot) {
  find_rows(call.s, call.operands.x, call.rows(chunk), slot.padded, slot.table);
}

/// The partial sum of some chunks for some filters.
class PartOfGradient {
 public:
  PartOfGradient(const Call& call, std::int64_t part)
      : call_(call),
        row_part_(part % call.plan.row_parts),
        first_(part / call.plan.row_parts * call.plan.filters),
        end_(std::min(first_ + call.plan.filters, call.s.filters)),
        panel_(reinterpret_cast<float*>(call.workspace + call.plan.partials_bytes() + call.plan.slots_bytes() +
                                        static_cast<std::size_t>(part) * call.plan.panel_bytes)) {}

  void run() {
    const WeightGradientPlan& plan = call_.plan;
    const std::int64_t first = row_part_ * plan.chunks_per_part,
                       end = std::min(plan.chunks, first + plan.chunks_per_part);
    for (std::int64_t chunk = first; chunk < end; ++chunk) {
      const Slot slot(call_, plan.shares_rows() ? chunk : row_part_);
      if (!plan.shares_rows()) fill(call_, chunk, slot);
      tile_.rows = slot.table;
      tile_.add = chunk > first;
      multiply(call_.rows(chunk));
    }
  }

 private:
  /// All filters of the part over the pixels of a chunk.
  void multiply(RowRange rows) {
    const WindowConv& s = call_.s;
    tile_.row_count = rows.count, tile_.pixels = s.out_w, tile_.step = s.stride_w * s.in_channels;
    for (std::int64_t c = first_; c < end_; c += call_.kernels.width) {
      const std::int64_t used = std::min(call_.kernels.width, end_ - c), width = call_.kernels.panel(used);
      const float* const dy = call_.operands.dy + rows.first * s.out_w * s.filters + c;
      tile_.dy = dy, tile_.dy_step = width;
      if (s.filters != width) {
        pack_panel(dy, s.filters, false, rows.count * s.out_w, used, width, panel_);
        tile_.dy = panel_;
      }
      multiply_panel(call_.partial(row_part_) + c * s.depth(), width);
    }
  }

  /// All values of a patch: runs of floats that lie side by side, some values at a time.
  void multiply_panel(float* dw, std::int64_t width) {
    const WindowConv& s = call_.s;
    const bool joined = s.dilation_w == 1;
    const std::int64_t across = joined ? 1 : s.kernel_w, run = s.in_channels * (joined ? s.kernel_w : 1);
    const std::int64_t down = s.dilation_h * (s.pads ? s.padded_w : s.in_w) * s.in_channels;
    const std::int64_t tiles = ceil_div(run, static_cast<std::int64_t>(call_.kernels.most_pixels)),
                       longest = ceil_div(run, tiles);
    const auto* const kernels =
        width == call_.kernels.width ? call_.kernels.wide_gradient : call_.kernels.narrow_gradient;
    for (std::int64_t tap = 0; tap < s.kernel_h * across; ++tap) {
      const std::int64_t begin = tap / across * down + tap % across * s.dilation_w * s.in_channels;
      for (std::int64_t at = 0; at < run; at += longest) {
        tile_.offset = begin + at;
        tile_.dw = dw + (tap * run + at) * width;
        kernels[std::min(longest, run - at) - 1](tile_);
      }
    }
  }

  const Call& call_;
  std::int64_t row_part_, first_, end_;
  float* panel_;
  GradientTile tile_;
};

/// Some rows of a panel of dw, (rows, width), to or onto columns of the contract's order.
void store_columns(const float* panel, std::int64_t width, RowRange rows, std::int64_t used, float* dw,
                   std::int64_t depth, bool accumulate) {
  const std::int64_t end = rows.first + rows.count, whole = rows.first + rows.count / 8 * 8, columns = used / 8 * 8;
  for (std::int64_t k = rows.first; k < whole; k += 8) {
    for (std::int64_t j = 0; j < columns; j += 8) {
      float* const to = dw + j * depth + k;
      if (!accumulate) {
        transpose_8x8(panel + k * width + j, width, to, depth);
        continue;
      }
      float values[64];
      transpose_8x8(panel + k * width + j, width, values, 8);
      for (std::int64_t a = 0; a < 8; ++a) {
        for (std::int64_t b = 0; b < 8; ++b) to[a * depth + b] += values[a * 8 + b];
      }
    }
  }
  for (std::int64_t j = 0; j < used; ++j) {
    for (std::int64_t k = j < columns ? whole : rows.first; k < end; ++k) {
      const float value = panel[k * width + j];
      dw[j * depth + k] = accumulate ? dw[j * depth + k] + value : value;
    }
  }
}

/// Adds the partial sums in order into the first, and stores them.
void finish(const Call& call, int threads) {
  constexpr std::int64_t kRows = 128;
  const WindowConv& s = call.s;
  const std::int64_t depth = s.depth(), blocks = ceil_div(depth, kRows), width = call.kernels.width;
  parallel_parts(ceil_div(s.filters, width) * blocks, threads, [&](std::int64_t i) {
    const std::int64_t c = i / blocks * width, first = i % blocks * kRows;
    const std::int64_t used = std::min(width, s.filters - c), panel = call.kernels.panel(used);
    const RowRange rows{first, std::min(kRows, depth - first)};
    float* const sum = call.partial(0) + c * depth;
    for (std::int64_t part = 1; part < call.plan.row_parts; ++part) {
      const float* const more = call.partial(part) + c * depth;
#pragma omp simd
      for (std::int64_t k = rows.first * panel; k < (rows.first + rows.count) * panel; ++k) sum[k] += more[k];
    }
    store_columns(sum, panel, rows, used, call.operands.dw + c * depth, depth, call.operands.accumulate);
  });
}

}  // namespace

void weight_gradient(const WindowConv& conv, const WeightGradient& operands, int threads, Workspace workspace) {
  const Call call{conv, plan_weight_gradient(conv), panel_kernels(), operands, static_cast<char*>(workspace.data)};
  require_workspace(workspace, call.plan.workspace_bytes(), "conv2d");
  if (call.plan.shares_rows()) {
    parallel_parts(call.plan.chunks, threads, [&](std::int64_t chunk) { fill(call, chunk, Slot(call, chunk)); });
  }
  parallel_parts(call.plan.parts(), threads, [&](std::int64_t part) { PartOfGradient(call, part).run(); });
  finish(call, threads);
}

}  // namespace bantam::kernels::cpu
