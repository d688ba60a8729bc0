// Depthwise convolution on the CPU: forward and input gradient gather over taps; dw is summed part by part.
#include "bantam/kernels/depthwise_conv2d.h"

#include "bantam/kernels/cpu/column_sums.h"
#include "bantam/kernels/cpu/convert.h"
#include "bantam/kernels/cpu/depthwise_gather.h"
#include "bantam/kernels/depthwise_parts.h"
#include "bantam/kernels/workspace_layout.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kFlatRow =
    32;  // below so many channels (and no whole vectors), eight positions run as one flat array

/// A tap's share of a row: `count` positions of x and dy, their first channels, and the steps from one to the next.
template <class T>
struct RowProducts {
  const T* x;
  const T* dy;
  std::int64_t count, x_step, dy_step;
};

/// dw[i] += Σ x·dy over the row, for V groups of eight channels (the last with `lanes` of them).
template <int V, class T>
inline void add_products(const RowProducts<T>& row, std::int64_t c, std::int64_t lanes, float* dw) {
  Float8 sum[V] = {};
  for (std::int64_t i = 0; i < row.count; ++i) {
    const T *x = row.x + i * row.x_step + c, *dy = row.dy + i * row.dy_step + c;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[v] += load_lanes(x + v * kLanes, lanes) * load_lanes(dy + v * kLanes, lanes);
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    float* to = dw + c + v * kLanes;
    store_lanes(to, lanes, load_lanes(to, lanes) + sum[v]);
  }
}

template <class T>
void add_channels(const RowProducts<T>& row, std::int64_t channels, float* dw) {
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= channels; c += 4 * kLanes) add_products<4>(row, c, kLanes, dw);
  for (; c + kLanes <= channels; c += kLanes) add_products<1>(row, c, kLanes, dw);
  if (c < channels) add_products<1>(row, c, channels - c, dw);
}

/// Few channels, neighbouring positions: eight positions are `channels` whole vectors, summed side by side and folded
/// at the end.
template <class T>
void add_flat(const RowProducts<T>& row, std::int64_t channels, float* dw) {
  Float8 sum[kFlatRow] = {};
  const std::int64_t whole = row.count / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole * channels; i += kLanes * channels) {
    for (std::int64_t v = 0; v < channels; ++v)
      sum[v] += load8(row.x + i + v * kLanes) * load8(row.dy + i + v * kLanes);
  }
  float folded[kFlatRow * kLanes];
  for (std::int64_t v = 0; v < channels; ++v) store8(folded + v * kLanes, sum[v]);
  for (std::int64_t i = 0; i < kLanes; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) dw[c] += folded[i * channels + c];
  }
  for (std::int64_t i = whole; i < row.count; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      dw[c] += static_cast<float>(row.x[i * channels + c]) * static_cast<float>(row.dy[i * channels + c]);
    }
  }
}

/// Several filters a channel.
template <class T>
void add_filters(const RowProducts<T>& row, std::int64_t channels, std::int64_t multiplier, float* dw) {
  for (std::int64_t i = 0; i < row.count; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto x = static_cast<float>(row.x[i * row.x_step + c]);
      for (std::int64_t q = c * multiplier; q < (c + 1) * multiplier; ++q) {
        dw[q] += x * static_cast<float>(row.dy[i * row.dy_step + q]);
      }
    }
  }
}

/// Adds the products of row `oh` of image n to dw (kernel_h, kernel_w, out_channels).
template <class T>
void add_row(const DepthwiseConv2dShape& s, const T* x, const T* dy, std::int64_t n, std::int64_t oh, float* dw) {
  const std::int64_t out_w = s.out_w(), out_channels = s.out_channels();
  const T* dy_row = dy + (n * s.out_h() + oh) * out_w * out_channels;
  for (std::int64_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap) {
    const std::int64_t ih = oh * s.stride_h - s.pad_top + tap / s.kernel_w * s.dilation_h;
    const std::int64_t start = tap % s.kernel_w * s.dilation_w - s.pad_left;  // column of x that output column 0 reads
    const std::int64_t begin = start >= 0 ? 0 : (-start + s.stride_w - 1) / s.stride_w;
    const std::int64_t end = start >= s.in_w ? 0 : std::min(out_w, (s.in_w - 1 - start) / s.stride_w + 1);
    if (ih < 0 || ih >= s.in_h || begin >= end) continue;
    const RowProducts<T> row{x + ((n * s.in_h + ih) * s.in_w + start + begin * s.stride_w) * s.channels,
                             dy_row + begin * out_channels, end - begin, s.stride_w * s.channels, out_channels};
    float* to = dw + tap * out_channels;
    if (s.multiplier > 1) {
      add_filters(row, s.channels, s.multiplier, to);
    } else if (s.channels < kFlatRow && s.channels % kLanes != 0 && s.stride_w == 1) {
      add_flat(row, s.channels, to);
    } else {
      add_channels(row, s.channels, to);
    }
  }
}

}  // namespace

void depthwise_conv2d_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                              const void* w, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Gather<T> gather{{s.in_h, s.kernel_h, s.stride_h, s.pad_top, s.dilation_h, false},
                           {s.in_w, s.kernel_w, s.stride_w, s.pad_left, s.dilation_w, false},
                           s.batch,
                           s.out_h(),
                           s.out_w(),
                           s.out_channels(),
                           s.channels,
                           s.multiplier,
                           static_cast<const T*>(x),
                           static_cast<const T*>(w),
                           static_cast<T*>(y)};
    run_gather(gather, exec.threads);
  });
}

void depthwise_conv2d_grad_input(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* dy,
                                 const void* w, void* dx) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Gather<T> gather{{s.out_h(), s.kernel_h, s.stride_h, s.pad_top, s.dilation_h, true},
                           {s.out_w(), s.kernel_w, s.stride_w, s.pad_left, s.dilation_w, true},
                           s.batch,
                           s.in_h,
                           s.in_w,
                           s.channels,
                           s.out_channels(),
                           s.multiplier,
                           static_cast<const T*>(dy),
                           static_cast<const T*>(w),
                           static_cast<T*>(dx)};
    run_gather(gather, exec.threads);
  });
}

void depthwise_conv2d_grad_weight(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                                  const void* dy, float* dw, bool accumulate, Workspace workspace) {
  require_workspace(workspace, depthwise_conv2d_grad_weight_workspace_bytes(s, dtype, DeviceKind::cpu),
                    "depthwise_conv2d_grad_weight");
  const std::int64_t parts = depthwise_grad_weight_parts(s, DeviceKind::cpu), count = s.w_elements();
  const std::int64_t out_h = s.out_h(), rows = s.batch * out_h;
  float* partials = static_cast<float*>(workspace.data);  // (parts, kernel_h, kernel_w, out_channels)
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_parts(parts, exec.threads, [&](std::int64_t part) {
      float* sums = parts == 1 ? dw : partials + part * count;
      if (parts > 1 || !accumulate) std::fill(sums, sums + count, 0.0f);
      for (std::int64_t r = part_begin(rows, parts, part); r < part_begin(rows, parts, part + 1); ++r) {
        add_row(s, static_cast<const T*>(x), static_cast<const T*>(dy), r / out_h, r % out_h, sums);
      }
    });
  });
  if (parts > 1) add_parts(partials, parts, count, dw, accumulate, exec.threads);
}

}  // namespace bantam::kernels::cpu
