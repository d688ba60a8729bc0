// Batch normalisation on the CPU: moments of cached blocks of rows in two passes, merged in part order.
// Source of the merge: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance".
#include "bantam/kernels/norm/batch_norm.h"

#include <cmath>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"
#include "bantam/kernels/norm/cpu/batch_norm_passes.h"
#include "bantam/kernels/norm/cpu/channel_moments.h"

namespace bantam::kernels::cpu {
namespace {

/// The moments of a channel, from the parts' in part order.
Moments merge_parts(const float* partials, const float* origin, const BatchNormShape& shape, std::int64_t c) {
  const std::int64_t parts = sum_parts(shape.rows, shape.channels, DeviceKind::cpu);
  double mean = 0, m2 = 0, seen = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const auto rows =
        static_cast<double>(part_begin(shape.rows, parts, part + 1) - part_begin(shape.rows, parts, part));
    const float* moments = partials + part * 2 * shape.channels;
    const double delta = moments[c] - mean;
    mean += delta * rows / (seen + rows);
    m2 += moments[shape.channels + c] + delta * delta * seen * rows / (seen + rows);
    seen += rows;
  }
  return {origin[c] + mean, m2 / seen};
}

float inv_std_of(const RunningStatistics& running, std::int64_t c) {
  return 1.0f / std::sqrt(running.variance[c] + running.epsilon);
}

/// A batch's statistics, or (without inv_std) the running ones.
struct ChannelStatistics {
  const float* mean;
  const float* inv_std;
  RunningStatistics running = {};

  float inverse(std::int64_t c) const { return inv_std != nullptr ? inv_std[c] : inv_std_of(running, c); }
};

/// y = f(z).
void normalise(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x, const BatchNormAffine& affine,
               const ChannelStatistics& statistics, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    with_activation8<T>(affine.activation, [&](auto f) {
      map_channels<3>(
          shape.rows, shape.channels, exec.threads,
          [&](std::int64_t c, float* p) {
            p[0] = statistics.mean[c];
            p[1] = statistics.inverse(c) * scale_of(affine, c);
            p[2] = shift_of(affine, c);
          },
          [=](std::int64_t at, std::int64_t lanes, const Float8* p) {
            store_lanes(to + at, lanes, f(linear(load_lanes(from + at, lanes), p[0], p[1], p[2])));
          });
    });
  });
}

}  // namespace

void batch_norm_forward_training(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                 const BatchNormAffine& affine, void* y, const StatisticsOutput& statistics,
                                 Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(shape, dtype, DeviceKind::cpu),
                    "batch_norm_forward_training");
  const std::int64_t parts = sum_parts(shape.rows, shape.channels, DeviceKind::cpu);
  float* partials = static_cast<float*>(workspace.data);  // (parts, 2, channels)
  float* origin = partials + parts * 2 * shape.channels;  // (channels)
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* in = static_cast<const T*>(x);
    widen(in, origin, shape.channels);
    parallel_parts(parts, exec.threads, [&](std::int64_t part) {
      float* mean = partials + part * 2 * shape.channels;
      part_moments(Samples<T>{in, origin, shape},
                   {part_begin(shape.rows, parts, part), part_begin(shape.rows, parts, part + 1)}, mean,
                   mean + shape.channels);
    });
  });
  for (std::int64_t c = 0; c < shape.channels; ++c)
    write_statistics(statistics, shape.rows, c, merge_parts(partials, origin, shape, c));
  if (y) batch_norm_apply(exec, shape, dtype, x, affine, statistics.mean, statistics.inv_std, y);
}

void batch_norm_apply(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                      const BatchNormAffine& affine, const float* mean, const float* inv_std, void* y) {
  normalise(exec, shape, dtype, x, affine, {mean, inv_std}, y);
}

void batch_norm_backward_training(const Exec& exec, const BatchNormShape& shape, DType dtype, const NormOperand& norm,
                                  const void* dy, const NormGradients& to, Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(shape, dtype, DeviceKind::cpu),
                    "batch_norm_backward_training");
  const std::int64_t channels = shape.channels;
  float* totals = static_cast<float*>(workspace.data);  // (2, channels), then factor and shift, then the parts' sums
  float* partials = totals + 4 * channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Saved<T> saved = saved_of<T>(norm, channels, totals + 2 * channels);
    const T* g = static_cast<const T*>(dy);
    with_activation8<T>(norm.affine.activation, [&](auto f) {
      gradient_sums(exec, shape, saved, g, f, partials, totals);
      if (to.dx) input_gradient(exec, shape, saved, g, f, totals, static_cast<T*>(to.dx));
    });
  });
  store_gradients(totals, channels, {to.dscale, to.dshift, to.accumulate});
}

void batch_norm_forward_inference(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                  const BatchNormAffine& affine, const RunningStatistics& running, void* y) {
  normalise(exec, shape, dtype, x, affine, {running.mean, nullptr, running}, y);
}

namespace {

/// dx = scale·inv_std·dy·f'(z).
template <class T, class Function>
void inference_gradient(const Exec& exec, const BatchNormShape& shape, const T* x, const BatchNormAffine& affine,
                        const RunningStatistics& running, const T* dy, Function f, T* dx) {
  map_channels<3>(
      shape.rows, shape.channels, exec.threads,
      [&](std::int64_t c, float* p) {
        p[0] = running.mean[c];
        p[1] = inv_std_of(running, c) * scale_of(affine, c);
        p[2] = shift_of(affine, c);
      },
      [=](std::int64_t at, std::int64_t lanes, const Float8* p) {
        const Float8 z = linear(load_lanes(x + at, lanes), p[0], p[1], p[2]);
        store_lanes(dx + at, lanes, p[1] * (load_lanes(dy + at, lanes) * f.derivative(z)));
      });
}

}  // namespace

void batch_norm_backward_inference(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                   const BatchNormAffine& affine, const RunningStatistics& running, const void* dy,
                                   const NormGradients& to, Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_inference_workspace_bytes(shape, to, DeviceKind::cpu),
                    "batch_norm_backward_inference");
  const std::int64_t channels = shape.channels;
  const bool sums = to.dscale != nullptr || to.dshift != nullptr;
  float* totals = static_cast<float*>(workspace.data);  // (2, channels), then inv_std, factor, shift, the parts' sums
  float* inv_std = totals + 2 * channels;
  for (std::int64_t c = 0; sums && c < channels; ++c) inv_std[c] = inv_std_of(running, c);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* g = static_cast<const T*>(dy);
    const T* in = x != nullptr ? static_cast<const T*>(x) : g;  // f' of none is 1 whatever z is
    with_activation8<T>(affine.activation, [&](auto f) {
      if (sums) {
        const NormOperand norm{in, affine, running.mean, inv_std};
        const Saved<T> saved = saved_of<T>(norm, channels, inv_std + channels);
        gradient_sums(exec, shape, saved, g, f, inv_std + 3 * channels, totals);
      }
      if (to.dx) inference_gradient(exec, shape, in, affine, running, g, f, static_cast<T*>(to.dx));
    });
  });
  if (sums) store_gradients(totals, channels, {to.dscale, to.dshift, to.accumulate});
}

}  // namespace bantam::kernels::cpu
