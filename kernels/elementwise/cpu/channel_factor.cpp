// A factor a channel on the CPU: eight channels at a time; its gradient's sums are made in the pass that writes dx.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/elementwise/channel_factor.h"

#include <algorithm>

#include "bantam/kernels/common/cpu/column_sums.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/workspace_layout.h"

namespace bantam::kernels::cpu {
namespace {

/// The lanes that are scaled; the others are 0.
template <bool kNegativeOnly>
[[gnu::always_inline]] inline Int8 scaled(Float8 x) {
  if constexpr (kNegativeOnly) return ~(x > 0.0f);
  return ~Int8{};
}

/// Calls call(std::bool_constant) with shape.negative_only.
template <class Call>
void with_rule(const ChannelFactorShape& shape, Call&& call) {
  if (shape.negative_only) return call(std::true_type{});
  call(std::false_type{});
}

float factor_of(const ChannelFactorShape& shape, const float* s, std::int64_t c) { return s[shape.shared ? 0 : c]; }

/// Operands of one type, and the factors, one a channel.
template <class T>
struct Operands {
  const T *x, *dy;
  T* dx;
  const float* factors;
};

/// The sums of `rows` to `sums`, to which they are added; and dx.
template <bool kNegativeOnly, class T>
void gradient_rows(const ChannelFactorShape& shape, const Operands<T>& in, RowBlock rows, float* sums) {
  sum_columns<1>(rows, shape.channels, &sums, [&](std::int64_t at, std::int64_t c, std::int64_t lanes, Float8* sum) {
    const Float8 x = load_lanes(in.x + at, lanes), dy = load_lanes(in.dy + at, lanes);
    const Int8 where = scaled<kNegativeOnly>(x);
    sum[0] += where ? x * dy : Float8{};
    if (in.dx != nullptr) store_lanes(in.dx + at, lanes, where ? load_lanes(in.factors + c, lanes) * dy : dy);
  });
}

/// ds gets the sums of all channels, or their sum.
void store_sums(const ChannelFactorShape& shape, const float* totals, const ChannelFactorGradients& to) {
  for (std::int64_t i = 0; i < shape.factors(); ++i) {
    double sum = 0;
    for (std::int64_t c = 0; c < (shape.shared ? shape.channels : 1); ++c) sum += totals[i + c];
    to.ds[i] = static_cast<float>(sum) + (to.accumulate ? to.ds[i] : 0.0f);
  }
}

/// dx alone.
template <bool kNegativeOnly, class T>
void input_gradient(const Exec& exec, const ChannelFactorShape& shape, const ChannelFactorGradInputs& in, T* dx) {
  const T *x = static_cast<const T*>(in.x), *dy = static_cast<const T*>(in.dy);
  map_channels<1>(
      shape.rows, shape.channels, exec.threads,
      [&](std::int64_t c, float* value) { value[0] = factor_of(shape, in.s, c); },
      [=](std::int64_t at, std::int64_t lanes, const Float8* p) {
        const Float8 g = load_lanes(dy + at, lanes);
        store_lanes(dx + at, lanes, scaled<kNegativeOnly>(load_lanes(x + at, lanes)) ? p[0] * g : g);
      });
}

}  // namespace

void channel_factor_forward(const Exec& exec, const ChannelFactorShape& shape, DType dtype, const void* x,
                            const float* s, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    with_rule(shape, [&](auto negative_only) {
      map_channels<1>(
          shape.rows, shape.channels, exec.threads,
          [&](std::int64_t c, float* value) { value[0] = factor_of(shape, s, c); },
          [=](std::int64_t at, std::int64_t lanes, const Float8* p) {
            const Float8 v = load_lanes(from + at, lanes);
            store_lanes(to + at, lanes, scaled<decltype(negative_only)::value>(v) ? p[0] * v : v);
          });
    });
  });
}

void channel_factor_grad(const Exec& exec, const ChannelFactorShape& shape, DType dtype,
                         const ChannelFactorGradInputs& in, const ChannelFactorGradients& to, Workspace workspace) {
  require_workspace(workspace, channel_factor_grad_workspace_bytes(shape, DeviceKind::cpu), "channel_factor_grad");
  const std::int64_t channels = shape.channels, parts = sum_parts(shape.rows, channels, DeviceKind::cpu);
  float* totals = static_cast<float*>(workspace.data);  // (channels), then the factors, then the parts' sums
  float *factors = totals + channels, *partials = factors + channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (to.ds == nullptr) {
      return with_rule(
          shape, [&](auto rule) { input_gradient<decltype(rule)::value>(exec, shape, in, static_cast<T*>(to.dx)); });
    }
    for (std::int64_t c = 0; c < channels; ++c) factors[c] = factor_of(shape, in.s, c);
    std::fill(partials, partials + parts * channels, 0.0f);
    const Operands<T> operands{static_cast<const T*>(in.x), static_cast<const T*>(in.dy), static_cast<T*>(to.dx),
                               factors};
    parallel_parts(parts, exec.threads, [&](std::int64_t part) {
      const RowBlock rows{part_begin(shape.rows, parts, part), part_begin(shape.rows, parts, part + 1)};
      with_rule(shape, [&](auto rule) {
        gradient_rows<decltype(rule)::value>(shape, operands, rows, partials + part * channels);
      });
    });
  });
  if (to.ds == nullptr) return;
  add_parts(partials, parts, channels, totals, false, exec.threads);
  store_sums(shape, totals, to);
}

}  // namespace bantam::kernels::cpu
