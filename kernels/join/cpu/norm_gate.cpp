// A batch norm before squeeze-and-excitation on the CPU: the norm is applied as each pass reads.
#include "bantam/kernels/join/norm_gate.h"

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"
#include "bantam/kernels/join/cpu/position_sums.h"
#include "bantam/kernels/join/norm_gate_plan.h"
#include "bantam/kernels/norm/cpu/batch_norm_passes.h"

namespace bantam::kernels::cpu {
namespace {

/// Eight values as T holds them.
template <class T>
[[gnu::always_inline]] inline Float8 rounded(Float8 v) {
  T values[kLanes];
  store8(values, v);
  return load8(values);
}

/// The norm's vectors.
struct NormVectors {
  const float *mean, *factor, *shift;

  static NormVectors of(const NormOperand& x, std::int64_t channels, float* room) {
    const Saved<float> saved = saved_of<float>(x, channels, room);
    return {saved.mean, saved.factor, saved.shift};
  }
  [[gnu::always_inline]] Float8 z(Float8 v, std::int64_t c) const {
    return linear(v, load8(mean + c), load8(factor + c), load8(shift + c));
  }
};

/// Calls call(tag of x, f8).
template <class Call>
void with_types(const ChannelScaleShape& s, const NormOperand& x, Call&& call) {
  if (!norm_gate_supports(s.channels, x.affine.activation))
    throw ShapeError("norm_gate: channels or an activation without a kernel");
  dispatch_floating(s.dtype, [&](auto tag) {
    with_activation8<typename decltype(tag)::type>(x.affine.activation, [&](auto f) { call(tag, f); });
  });
}

/// visit(offset, sample·channels + channel, channel) for every eight elements, in parallel over rows.
template <class Visit>
void for_each_eight(const Exec& exec, const ChannelScaleShape& s, Visit&& visit) {
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / s.channels);
  parallel_ranges(s.samples * s.positions, grain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t c = 0; c < s.channels; c += kLanes)
        visit(r * s.channels + c, r / s.positions * s.channels + c, c);
  });
}

}  // namespace

void norm_gate_mean(const Exec& exec, const ChannelScaleShape& s, const NormOperand& x, float* mean,
                    Workspace workspace) {
  if (s.factors() <= 0) return;
  const NormGateScratch scratch(s, DeviceKind::cpu, workspace, "norm_gate_mean");
  const NormVectors norm = NormVectors::of(x, s.channels, scratch.norm);
  const float share = 1.0f / static_cast<float>(std::max<std::int64_t>(s.positions, 1));
  with_types(s, x, [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(x.x);
    sum_positions<1>(exec, s, scratch.partials, mean, share,
                     [=](std::int64_t at, std::int64_t c, std::int64_t, Float8* sum) {
                       sum[0] += rounded<T>(f(norm.z(load8(from + at), c)));
                     });
  });
}

void norm_gate_apply(const Exec& exec, const ChannelScaleShape& s, const NormOperand& x, const float* factor, void* y,
                     Workspace workspace) {
  if (s.elements() <= 0) return;
  const NormGateScratch scratch(s, DeviceKind::cpu, workspace, "norm_gate_apply");
  const NormVectors norm = NormVectors::of(x, s.channels, scratch.norm);
  with_types(s, x, [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    for_each_eight(exec, s, [&](std::int64_t at, std::int64_t by, std::int64_t c) {
      const Float8 a = rounded<T>(f(norm.z(load8(static_cast<const T*>(x.x) + at), c)));
      store8(static_cast<T*>(y) + at, a * load8(factor + by));
    });
  });
}

void norm_gate_grad_sums(const Exec& exec, const ChannelScaleShape& s, const NormOperand& x, const void* dy,
                         float* sums, Workspace workspace) {
  if (s.factors() <= 0) return;
  const NormGateScratch scratch(s, DeviceKind::cpu, workspace, "norm_gate_grad_sums");
  const NormVectors norm = NormVectors::of(x, s.channels, scratch.norm);
  with_types(s, x, [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    const T *from = static_cast<const T*>(x.x), *up = static_cast<const T*>(dy);
    sum_positions<kNormGateSums>(
        exec, s, scratch.partials, sums, 1.0f, [=](std::int64_t at, std::int64_t c, std::int64_t, Float8* sum) {
          const Float8 v = load8(from + at), g = load8(up + at), z = norm.z(v, c), apart = v - load8(norm.mean + c);
          const Float8 slope = f.derivative(z), dz = slope * g;
          sum[0] += g * rounded<T>(f(z));
          sum[1] += dz;
          sum[2] += dz * apart;
          sum[3] += slope;
          sum[4] += slope * apart;
        });
  });
}

void norm_gate_grad(const Exec& exec, const ChannelScaleShape& s, const NormGateInputs& in, const NormGradients& to,
                    Workspace workspace) {
  if (s.elements() <= 0) return;
  const NormGateScratch scratch(s, DeviceKind::cpu, workspace, "norm_gate_grad");
  const NormVectors norm = NormVectors::of(in.x, s.channels, scratch.norm);
  float* const totals = scratch.totals;
  parallel_ranges(s.channels, 16, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      double total[2] = {};
      for (std::int64_t n = 0; n < s.samples; ++n) {
        const std::int64_t at = n * s.channels + c;
        for (int k = 0; k < 2; ++k)
          total[k] += static_cast<double>(in.factor[at]) * in.sums[(1 + k) * s.factors() + at] +
                      static_cast<double>(in.offset[at]) * in.sums[(3 + k) * s.factors() + at];
      }
      totals[c] = static_cast<float>(total[0]);
      totals[s.channels + c] = static_cast<float>(total[1] * in.x.inv_std[c]);
    }
  });
  store_gradients(totals, s.channels, {to.dscale, to.dshift, to.accumulate});
  if (to.dx == nullptr) return;
  const float per_row = 1.0f / static_cast<float>(s.samples * s.positions);
  with_types(s, in.x, [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    for_each_eight(exec, s, [&](std::int64_t at, std::int64_t by, std::int64_t c) {
      const Float8 v = load8(static_cast<const T*>(in.x.x) + at), g = load8(static_cast<const T*>(in.dy) + at);
      const Float8 dz = f.derivative(norm.z(v, c)) * (g * load8(in.factor + by) + load8(in.offset + by));
      const Float8 normalised = (v - load8(norm.mean + c)) * load8(in.x.inv_std + c);
      const Float8 rest = (load8(totals + c) + normalised * load8(totals + s.channels + c)) * per_row;
      store8(static_cast<T*>(to.dx) + at, load8(norm.factor + c) * (dz - rest));
    });
  });
}

}  // namespace bantam::kernels::cpu
