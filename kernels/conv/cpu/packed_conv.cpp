// Convolutions over packed weights: pixels' patches, read where they lie, times packed weights (an indirect GEMM,
// Dukhan 2019); bias, sum and activation follow while the result is in a cache.
#include "bantam/kernels/conv/cpu/packed_conv.h"

#include <algorithm>
#include <limits>

#include "bantam/base/parallel.h"
#include "bantam/kernels/conv/cpu/packed_panels.h"
#include "bantam/kernels/conv/cpu/window_rows.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"

namespace bantam::kernels::cpu {
namespace {

/// The facts that all parts of a call share: shape, plan, kernels and operands.
struct Call {
  const WindowConv& s;
  PackedPlan plan;
  const PanelKernels& kernels;
  const PackedConv& operands;
};

/// The room of one part; parts of the same rows share what these read.
struct Slot {
  Slot(const PackedPlan& plan, void* workspace, std::int64_t part) {
    const auto rows = static_cast<std::size_t>(part % plan.row_parts);
    char* const begin = static_cast<char*>(workspace);
    padded = reinterpret_cast<float*>(begin + rows * plan.slot_bytes());
    table = reinterpret_cast<const float**>(begin + rows * plan.slot_bytes() + plan.padded_bytes);
    edge = reinterpret_cast<float*>(begin + plan.slots_bytes() + static_cast<std::size_t>(part) * plan.edge_bytes);
  }
  float* padded;
  const float** table;  ///< by output row of the part: where its first patch begins
  float* edge;          ///< a narrow panel's rows, widened with zeros
};

/// The rows and columns of the result that a part computes at a time.
struct Share {
  std::int64_t first_row, rows, first_column, columns;
};

Share share_of(const Call& call, std::int64_t part, std::int64_t chunk) {
  const PackedPlan& plan = call.plan;
  const std::int64_t row = (part % plan.row_parts * plan.chunks + chunk) * plan.rows,
                     column = part / plan.row_parts * plan.columns;
  return {row, std::min(plan.rows, call.s.batch * call.s.out_h - row), column,
          std::min(plan.columns, call.s.filters - column)};
}

/// A range of the sum: where it begins in a patch and in the panels.
struct DepthRange {
  TileDepth depth;
  std::int64_t patch = 0;  ///< floats from a patch's begin
  std::int64_t row = 0;    ///< the first row of the panels in the range
  bool last = false;
  std::int64_t length() const { return depth.segments * depth.length; }
};

/// Calls `body(range)` for the sum's ranges, in order: of at most kDepth, cut by shape only. A patch is a run of
/// floats for each row of the kernel, or, where taps are apart, for each tap.
template <class Body>
void for_each_range(const Call& call, Body&& body) {
  const WindowConv& s = call.s;
  constexpr std::int64_t kDepth = PackedPlan::kDepth;
  const bool joined = s.dilation_w == 1;
  const std::int64_t across = joined ? 1 : s.kernel_w, run = s.in_channels * (joined ? s.kernel_w : 1);
  const std::int64_t down = s.dilation_h * call.plan.padded_row, total = s.depth();
  if (joined && run <= kDepth / 2) {
    const std::int64_t most = kDepth / run;
    for (std::int64_t a = 0; a < s.kernel_h; a += most) {
      const std::int64_t segments = std::min(most, s.kernel_h - a), row = a * run;
      body(DepthRange{{segments, run, down}, a * down, row, row + segments * run == total});
    }
    return;
  }
  const std::int64_t cuts = ceil_div(run, kDepth), longest = ceil_div(run, cuts);
  for (std::int64_t tap = 0; tap < s.kernel_h * across; ++tap) {
    const std::int64_t begin = tap / across * down + tap % across * s.dilation_w * s.in_channels;
    for (std::int64_t at = 0; at < run; at += longest) {
      const std::int64_t length = std::min(longest, run - at), row = tap * run + at;
      body(DepthRange{{1, length, 0}, begin + at, row, row + length == total});
    }
  }
}

/// The rest of an epilogue that the tiles do not compute: curved activations.
void activate(const Epilogue& epilogue, float* y, std::int64_t count) {
  with_activation8<float>(epilogue.f, [&](const auto& f) {
    for (std::int64_t i = 0; i < count; i += kLanes) {
      const std::int64_t lanes = std::min(kLanes, count - i);
      store_lanes(y + i, lanes, f(load_lanes(y + i, lanes)));
    }
  });
}

/// A part's columns, some at a time, whose weights of a range stay in a cache.
class PartOfCall {
 public:
  PartOfCall(const Call& call, const Share& share, const Slot& slot)
      : call_(call), share_(share), slot_(slot), pixels_(share.rows * call.s.out_w) {
    const std::int64_t tiles = ceil_div(pixels_, static_cast<std::int64_t>(call.kernels.most_pixels));
    tile_pixels_ = ceil_div(pixels_, tiles);  // tiles of one size: none is nearly empty
    const ActivationFunction f = call.operands.epilogue.f;
    curved_ = !is_piecewise(f.kind);
    if (curved_ || f.kind == Activation::none) return;
    const PiecewiseLinear line = PiecewiseLinear::of(f);
    tile_.clamps = true;
    tile_.below = line.below;
    tile_.top = line.bounded ? line.top : std::numeric_limits<float>::infinity();
  }

  void run() {
    for (std::int64_t c = 0; c < share_.columns; c += PackedPlan::kColumnGroup) {
      const std::int64_t columns = std::min(PackedPlan::kColumnGroup, share_.columns - c);
      for_each_range(call_, [&](const DepthRange& range) { multiply(range, share_.first_column + c, columns); });
    }
  }

 private:
  /// All pixels of the part times some columns, over one range of the sum: a panel of weights after the other, since it
  /// stays in the first-level cache.
  void multiply(const DepthRange& range, std::int64_t first, std::int64_t columns) {
    const std::int64_t width = call_.kernels.width;
    tile_.depth = range.depth;
    tile_.add = range.row > 0;
    tile_.last = range.last;
    for (std::int64_t c = first; c < first + columns; c += width) {
      const std::int64_t used = std::min(width, first + columns - c);
      if (used < width) widen_edge(range, c, used);
      tile_.weights = call_.operands.w + c * call_.s.depth() + range.row * width;
      multiply_panel(range, c, used);
    }
  }

  void multiply_panel(const DepthRange& range, std::int64_t first, std::int64_t used) {
    const WindowConv& s = call_.s;
    const std::int64_t step = s.stride_w * s.in_channels;
    std::int64_t row = 0, column = 0, at = row_of_y(0) + first;
    for (std::int64_t p = 0; p < pixels_; p += tile_pixels_) {
      const auto count = static_cast<int>(std::min(tile_pixels_, pixels_ - p));
      for (int i = 0; i < count; ++i) {
        tile_.patches[i] = slot_.table[row] + column * step + range.patch;
        tile_.y[i] = call_.operands.y + at + column * s.y_pixel;
        if (++column == s.out_w) column = 0, at = row_of_y(++row) + first;
      }
      multiply_pixels(count, first, used);
      if (!curved_ || !range.last) continue;
      for (int i = 0; i < count; ++i) activate(call_.operands.epilogue, tile_.y[i], used);
    }
  }

  /// Floats of y before the part's output row `row`.
  std::int64_t row_of_y(std::int64_t row) const {
    const std::int64_t all = share_.first_row + row;
    return all / call_.s.out_h * call_.s.y_image + all % call_.s.out_h * call_.s.y_row;
  }

  void multiply_pixels(int count, std::int64_t first, std::int64_t used) {
    const Epilogue& epilogue = call_.operands.epilogue;
    const auto* bias = static_cast<const float*>(epilogue.bias);
    const auto* residual = static_cast<const float*>(epilogue.residual);
    tile_.bias = bias != nullptr ? bias + first : nullptr;
    tile_.residual = residual != nullptr ? residual + (tile_.y[0] - call_.operands.y) : nullptr;
    if (used == call_.kernels.width) {
      call_.kernels.wide[count - 1](tile_);
    } else {
      multiply_edge(count, used);
    }
  }

  /// The last panel, which is narrower, with zeros up to whole vectors.
  void widen_edge(const DepthRange& range, std::int64_t column, std::int64_t used) {
    const std::int64_t width = call_.kernels.panel(used);
    const float* from = call_.operands.w + column * call_.s.depth() + range.row * used;
    pack_panel(from, used, false, range.length(), used, width, slot_.edge);
  }

  /// A tile of the last panel: into a tile of its own, of which y gets the columns that it has.
  void multiply_edge(int count, std::int64_t used) {
    constexpr std::int64_t kWidth = PackedPlan::kPanel;
    alignas(64) float values[kMostPixels * kWidth];
    const std::int64_t width = call_.kernels.panel(used);
    PackedTile tile = tile_;
    tile.weights = slot_.edge;
    for (int r = 0; r < count; ++r) tile.y[r] = values + r * width;
    tile.add = tile.last = false;
    (width == call_.kernels.width ? call_.kernels.wide : call_.kernels.narrow)[count - 1](tile);
    for (int r = 0; r < count; ++r)
      for (std::int64_t c = 0; c < used; ++c) {
        float* const y = tile_.y[r] + c;
        float value = values[r * width + c] + (tile_.add ? *y : 0.0f);
        if (tile_.last) {
          if (tile_.bias != nullptr) value += tile_.bias[c];
          if (tile_.residual != nullptr) value += tile_.residual[y - tile_.y[0]];
          if (tile_.clamps) value = PiecewiseLinear{tile_.below, tile_.top, true}(value);
        }
        *y = value;
      }
  }

  const Call& call_;
  Share share_;
  Slot slot_;
  std::int64_t pixels_, tile_pixels_;
  PackedTile tile_;
  bool curved_ = false;
};

}  // namespace

void packed_conv(const WindowConv& conv, const PackedConv& operands, int threads, Workspace workspace) {
  const Call call{conv, plan_packed(conv), panel_kernels(), operands};
  require_workspace(workspace, call.plan.workspace_bytes(), "conv2d");
  const auto find = [&](std::int64_t part, const Share& share) {
    const Slot slot(call.plan, workspace.data, part);
    find_rows(conv, operands.x, {share.first_row, share.rows}, slot.padded, slot.table);
  };
  const bool shared = call.plan.column_parts > 1;  // else a part finds its own rows, which are in its cache then
  if (shared) {                                    // few rows: a chunk a part
    parallel_parts(call.plan.row_parts, threads, [&](std::int64_t part) { find(part, share_of(call, part, 0)); });
  }
  parallel_parts(call.plan.parts(), threads, [&](std::int64_t part) {
    for (std::int64_t chunk = 0; chunk < call.plan.chunks; ++chunk) {
      const Share share = share_of(call, part, chunk);
      if (share.rows <= 0) return;
      if (!shared) find(part, share);
      PartOfCall(call, share, Slot(call.plan, workspace.data, part)).run();
    }
  });
}

}  // namespace bantam::kernels::cpu
