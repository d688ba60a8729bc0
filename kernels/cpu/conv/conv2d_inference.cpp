// Convolutions for inference on the CPU: pixels' patches, read where they lie, times packed weights (an indirect GEMM,
// Dukhan 2019); bias, sum and activation follow while the result is in a cache.
#include "bantam/kernels/contracts/conv/conv2d_inference.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "bantam/base/parallel.h"
#include "bantam/kernels/cpu/conv/packed_panels.h"
#include "bantam/kernels/cpu/elementwise/activation_math.h"
#include "bantam/kernels/tiling/conv/inference_plan.h"

namespace bantam::kernels::cpu {
namespace {

/// What all parts of a call share.
struct Call {
  const Conv2dShape& s;
  InferencePlan plan;
  const PanelKernels& kernels;
  const float* x;
  const float* w;
  const Epilogue& epilogue;
  float* y;

  std::int64_t depth() const { return s.kernel_h * s.kernel_w * s.in_channels; }
  /// Floats of a row of x where parts read it.
  std::int64_t row_length() const { return plan.padded_row; }  // without padding that is x's own
};

/// The room of one part; parts of the same rows share what these read.
struct Slot {
  Slot(const InferencePlan& plan, void* workspace, std::int64_t part) {
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

/// What a part computes.
struct Share {
  std::int64_t first_row, rows, first_column, columns;
};

Share share_of(const Call& call, std::int64_t part) {
  const InferencePlan& plan = call.plan;
  const std::int64_t row = part % plan.row_parts * plan.rows, column = part / plan.row_parts * plan.columns;
  return {row, std::min(plan.rows, call.s.batch * call.s.out_h() - row), column,
          std::min(plan.columns, call.s.out_channels - column)};
}

/// Copies rows [first, last) of an image, counted from its padding's first, with zeros where there is no image.
void copy_padded(const Conv2dShape& s, const float* image, std::int64_t first, std::int64_t last, float* to) {
  const std::int64_t left = s.pad_left * s.in_channels, inner = s.in_w * s.in_channels,
                     right = s.pad_right * s.in_channels;
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t from = row - s.pad_top;
    if (from < 0 || from >= s.in_h) {
      to = std::fill_n(to, left + inner + right, 0.0f);
      continue;
    }
    to = std::fill_n(to, left, 0.0f);
    std::memcpy(to, image + from * inner, static_cast<std::size_t>(inner) * sizeof(float));
    to = std::fill_n(to + inner, right, 0.0f);
  }
}

/// Fills the table, and pads what the part's rows read.
void find_rows(const Call& call, const Share& share, const Slot& slot) {
  const Conv2dShape& s = call.s;
  const std::int64_t out_h = s.out_h(), row_length = call.row_length();
  float* padded = slot.padded;
  for (std::int64_t done = 0; done < share.rows;) {  // an image at a time
    const std::int64_t row = share.first_row + done, image = row / out_h, first = row % out_h;
    const std::int64_t rows = std::min(share.rows - done, out_h - first);
    const float* from = call.x + image * s.in_h * s.in_w * s.in_channels;
    const std::int64_t begin = first * s.stride_h,
                       end = (first + rows - 1) * s.stride_h + s.dilation_h * (s.kernel_h - 1) + 1;
    const float* base = from + begin * row_length;
    if (call.plan.pads) {
      copy_padded(s, from, begin, end, padded);
      base = padded;
      padded += (end - begin) * row_length;
    }
    for (std::int64_t i = 0; i < rows; ++i) slot.table[done + i] = base + i * s.stride_h * row_length;
    done += rows;
  }
}

/// A range of the sum: where it begins in a patch and in the panels.
struct DepthRange {
  TileDepth depth;
  std::int64_t patch = 0;  ///< floats from a patch's begin
  std::int64_t row = 0;    ///< of the panels
  bool last = false;
  std::int64_t length() const { return depth.segments * depth.length; }
};

/// Calls `body(range)` for the sum's ranges, in order: of at most kDepth, cut by shape only. A patch is a run of
/// floats for each row of the kernel, or, where taps are apart, for each tap.
template <class Body>
void for_each_range(const Call& call, Body&& body) {
  const Conv2dShape& s = call.s;
  constexpr std::int64_t kDepth = InferencePlan::kDepth;
  const bool joined = s.dilation_w == 1;
  const std::int64_t across = joined ? 1 : s.kernel_w, run = s.in_channels * (joined ? s.kernel_w : 1);
  const std::int64_t down = s.dilation_h * call.row_length(), total = call.depth();
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
  with_activation8(epilogue.f, [&](const auto& f) {
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
      : call_(call), share_(share), slot_(slot), pixels_(share.rows * call.s.out_w()) {
    const std::int64_t tiles = ceil_div(pixels_, static_cast<std::int64_t>(call.kernels.most_pixels));
    tile_pixels_ = ceil_div(pixels_, tiles);  // tiles of one size: none is nearly empty
    tile_.y_row = call.s.out_channels;
    const ActivationFunction f = call.epilogue.f;
    curved_ = !is_piecewise(f.kind);
    if (curved_ || f.kind == Activation::none) return;
    const PiecewiseLinear line = PiecewiseLinear::of(f);
    tile_.clamps = true;
    tile_.below = line.below;
    tile_.top = line.bounded ? line.top : std::numeric_limits<float>::infinity();
  }

  void run() {
    for (std::int64_t c = 0; c < share_.columns; c += InferencePlan::kColumnGroup) {
      const std::int64_t columns = std::min(InferencePlan::kColumnGroup, share_.columns - c);
      for_each_range(call_, [&](const DepthRange& range) { multiply(range, share_.first_column + c, columns); });
    }
  }

 private:
  /// All pixels of the part times some columns, over one range of the sum.
  void multiply(const DepthRange& range, std::int64_t first, std::int64_t columns) {
    const std::int64_t width = call_.kernels.width;
    if (columns % width != 0) widen_edge(range, first + columns / width * width, columns % width);
    tile_.depth = range.depth;
    tile_.add = range.row > 0;
    tile_.last = range.last;
    const std::int64_t out_w = call_.s.out_w(), step = call_.s.stride_w * call_.s.in_channels;
    std::int64_t row = 0, column = 0;
    for (std::int64_t p = 0; p < pixels_; p += tile_pixels_) {
      const auto count = static_cast<int>(std::min(tile_pixels_, pixels_ - p));
      for (int i = 0; i < count; ++i) {
        tile_.patches[i] = slot_.table[row] + column * step + range.patch;
        if (++column == out_w) column = 0, ++row;
      }
      multiply_pixels(range, share_.first_row * out_w + p, count, first, columns);
    }
  }

  void multiply_pixels(const DepthRange& range, std::int64_t pixel, int count, std::int64_t first,
                       std::int64_t columns) {
    const std::int64_t width = call_.kernels.width, depth = call_.depth(), at = pixel * call_.s.out_channels;
    const auto* bias = static_cast<const float*>(call_.epilogue.bias);
    const auto* residual = static_cast<const float*>(call_.epilogue.residual);
    for (std::int64_t c = first; c < first + columns; c += width) {
      const std::int64_t used = std::min(width, first + columns - c);
      tile_.y = call_.y + at + c;
      tile_.bias = bias != nullptr ? bias + c : nullptr;
      tile_.residual = residual != nullptr ? residual + at + c : nullptr;
      if (used == width) {
        tile_.weights = call_.w + c * depth + range.row * width;
        call_.kernels.wide[count - 1](tile_);
      } else {
        multiply_edge(count, used);
      }
    }
    if (!curved_ || !range.last) return;
    for (int i = 0; i < count; ++i) activate(call_.epilogue, call_.y + at + i * call_.s.out_channels + first, columns);
  }

  /// The last panel, which is narrower, with zeros up to whole vectors.
  void widen_edge(const DepthRange& range, std::int64_t column, std::int64_t used) {
    const std::int64_t width = edge_width(used);
    const float* from = call_.w + column * call_.depth() + range.row * used;
    pack_panel(from, used, false, range.length(), used, width, slot_.edge);
  }
  std::int64_t edge_width(std::int64_t used) const {
    return used > call_.kernels.width / 2 ? call_.kernels.width : call_.kernels.width / 2;
  }

  /// A tile of the last panel: into a tile of its own, of which y gets the columns that it has.
  void multiply_edge(int count, std::int64_t used) {
    constexpr std::int64_t kWidth = InferencePlan::kPanel;
    alignas(64) float values[kMostPixels * kWidth];
    const std::int64_t width = edge_width(used);
    PackedTile tile = tile_;
    tile.weights = slot_.edge;
    tile.y = values, tile.y_row = width, tile.add = tile.last = false;
    (width == call_.kernels.width ? call_.kernels.wide : call_.kernels.narrow)[count - 1](tile);
    for (int r = 0; r < count; ++r)
      for (std::int64_t c = 0; c < used; ++c) {
        const std::int64_t at = r * tile_.y_row + c;
        float value = values[r * width + c] + (tile_.add ? tile_.y[at] : 0.0f);
        if (tile_.last) {
          if (tile_.bias != nullptr) value += tile_.bias[c];
          if (tile_.residual != nullptr) value += tile_.residual[at];
          if (tile_.clamps) value = PiecewiseLinear{tile_.below, tile_.top, true}(value);
        }
        tile_.y[at] = value;
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

void conv2d_pack_weights(const Exec& exec, const Conv2dShape& shape, DType dtype, void* w, Workspace workspace) {
  if (!packs_weights(shape, dtype) || shape.w_elements() == 0) return;
  require_workspace(workspace, conv2d_pack_workspace_bytes(shape, dtype, DeviceKind::cpu), "conv2d_pack_weights");
  auto *weights = static_cast<float*>(w), *plain = static_cast<float*>(workspace.data);
  std::copy_n(weights, shape.w_elements(), plain);
  pack_panels(plain, shape.out_channels, shape.w_elements() / shape.out_channels, weights, exec.threads);
}

void conv2d_inference(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                      const Epilogue& epilogue, void* y, Workspace workspace) {
  check_conv2d_type(dtype);
  if (!packs_weights(shape, dtype)) {
    conv2d_forward(exec, shape, dtype, x, w, y, workspace);
    epilogue_forward(exec, shape.batch * shape.out_h() * shape.out_w(), shape.out_channels, dtype, epilogue, y);
    return;
  }
  if (shape.y_elements() == 0) return;
  const Call call{
      shape,    plan_inference(shape), panel_kernels(), static_cast<const float*>(x), static_cast<const float*>(w),
      epilogue, static_cast<float*>(y)};
  require_workspace(workspace, call.plan.workspace_bytes(), "conv2d_inference");
  const auto find = [&](std::int64_t part) {
    find_rows(call, share_of(call, part), Slot(call.plan, workspace.data, part));
  };
  const bool shared = call.plan.column_parts > 1;  // else a part finds its own rows, which are in its cache then
  if (shared) parallel_parts(call.plan.row_parts, exec.threads, find);
  parallel_parts(call.plan.parts(), exec.threads, [&](std::int64_t part) {
    if (!shared) find(part);
    PartOfCall(call, share_of(call, part), Slot(call.plan, workspace.data, part)).run();
  });
}

}  // namespace bantam::kernels::cpu
