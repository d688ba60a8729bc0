// A factor for each sample and channel on the CPU: rows in parallel, partial sums added in part order.
#include "bantam/kernels/join/channel_scale.h"

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/join/cpu/position_sums.h"
#include "bantam/kernels/join/squeeze_excite.h"

namespace bantam::kernels::cpu {
namespace {

/// Calls call(tag of x, tag of the factors).
template <class Call>
void dispatch_types(const ChannelScaleShape& s, Call&& call) {
  dispatch_floating(s.dtype, [&](auto x) {
    if (s.factor_dtype == DType::float32) return call(x, std::type_identity<float>{});
    if (s.factor_dtype != s.dtype) throw DTypeError("channel_scale: the factors' type is neither x's nor float32");
    call(x, x);
  });
}

template <class T, class F>
struct Pointers {
  const T *x, *dy;
  const F* factor;
  T* dx;
};

/// dx of the rows of one part of a sample, and their sums to `sums`, where they are not null.
template <class T, class F>
void grad_part(const Pointers<T, F>& at, RowBlock rows, std::int64_t channels, float* sums) {
  if (sums != nullptr) std::fill(sums, sums + channels, 0.0f);
  const auto add = [=](std::int64_t i, std::int64_t c, std::int64_t lanes, Float8* sum) {
    const Float8 dy = load_lanes(at.dy + i, lanes);
    if (sums != nullptr) sum[0] += dy * load_lanes(at.x + i, lanes);
    if (at.dx != nullptr) store_lanes(at.dx + i, lanes, dy * load_lanes(at.factor + c, lanes));
  };
  if (sums != nullptr) return sum_columns<1>(rows, channels, &sums, add);
  for (std::int64_t r = rows.begin; r < rows.end; ++r)
    for (std::int64_t c = 0; c < channels; c += kLanes)
      add(r * channels + c, c, std::min(kLanes, channels - c), nullptr);
}

}  // namespace

void channel_scale_forward(const Exec& exec, const ChannelScaleShape& s, const void* x, const void* factor,
                           const void* offset, void* y) {
  if (s.elements() <= 0) return;
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / s.channels);
  dispatch_types(s, [&](auto t, auto f) {
    using T = typename decltype(t)::type;
    using F = typename decltype(f)::type;
    parallel_ranges(s.samples * s.positions, grain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const F* by = static_cast<const F*>(factor) + r / s.positions * s.channels;
        const F* plus = offset != nullptr ? static_cast<const F*>(offset) + r / s.positions * s.channels : nullptr;
        for (std::int64_t c = 0; c < s.channels; c += kLanes) {
          const std::int64_t lanes = std::min(kLanes, s.channels - c), at = r * s.channels + c;
          Float8 v = load_lanes(static_cast<const T*>(x) + at, lanes) * load_lanes(by + c, lanes);
          if (plus != nullptr) v += load_lanes(plus + c, lanes);
          store_lanes(static_cast<T*>(y) + at, lanes, v);
        }
      }
    });
  });
}

void channel_scale_grad(const Exec& exec, const ChannelScaleShape& s, const ChannelScaleInputs& inputs,
                        const ChannelScaleGradients& to, Workspace workspace) {
  const std::int64_t parts = position_parts(s, DeviceKind::cpu), sample = s.positions * s.channels;
  const bool direct = parts == 1 && s.factor_dtype == DType::float32;
  if (to.dfactor != nullptr)
    require_workspace(workspace, channel_scale_workspace_bytes(s, DeviceKind::cpu), "channel_scale_grad");
  float* sums = static_cast<float*>(direct ? to.dfactor : workspace.data);
  if (to.dfactor == nullptr) sums = nullptr;
  if (s.factors() <= 0) return;
  dispatch_types(s, [&](auto t, auto f) {
    using T = typename decltype(t)::type;
    using F = typename decltype(f)::type;
    parallel_parts(s.samples * parts, exec.threads, [&](std::int64_t i) {
      const std::int64_t n = i / parts, part = i % parts, at = n * sample;
      const Pointers<T, F> from{static_cast<const T*>(inputs.x) + at, static_cast<const T*>(inputs.dy) + at,
                                static_cast<const F*>(inputs.factor) + n * s.channels,
                                to.dx != nullptr ? static_cast<T*>(to.dx) + at : nullptr};
      grad_part(from, {part_begin(s.positions, parts, part), part_begin(s.positions, parts, part + 1)}, s.channels,
                sums != nullptr ? sums + i * s.channels : nullptr);
    });
    if (sums != nullptr && !direct) add_position_parts(exec, s, s.samples, sums, static_cast<F*>(to.dfactor), 1.0f);
  });
}

void position_mean(const Exec& exec, const ChannelScaleShape& s, const void* x, float* mean, Workspace workspace) {
  require_workspace(workspace, channel_scale_workspace_bytes(s, DeviceKind::cpu), "position_mean");
  float* partials = position_parts(s, DeviceKind::cpu) == 1 ? nullptr : static_cast<float*>(workspace.data);
  if (s.factors() <= 0) return;
  const float share = 1.0f / static_cast<float>(std::max<std::int64_t>(s.positions, 1));
  dispatch_floating(s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(x);
    sum_positions<1>(exec, s, partials, mean, share,
                     [=](std::int64_t at, std::int64_t, std::int64_t lanes, Float8* sum) {
                       sum[0] += load_lanes(from + at, lanes);
                     });
  });
}

}  // namespace bantam::kernels::cpu
