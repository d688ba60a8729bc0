// The passes of batch norm's backward on the CPU, and what becomes of a batch's moments: for the norm alone, and for
// ops that have norms in them.
#pragma once

#include <cmath>
#include <functional>

#include "bantam/kernels/common/cpu/column_sums.h"
#include "bantam/kernels/depthwise/norm_depthwise.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"
#include "bantam/kernels/norm/cpu/affine8.h"

namespace bantam::kernels::cpu {

/// Mean and biased variance of a channel.
struct Moments {
  double mean = 0, variance = 0;
};

/// Stores channel c's statistics over `rows` rows, and moves the running ones.
inline void write_statistics(const StatisticsOutput& to, std::int64_t rows, std::int64_t c, const Moments& moments) {
  const double correction =
      to.update.unbiased && rows > 1 ? static_cast<double>(rows) / static_cast<double>(rows - 1) : 1.0;
  const double rate = running_part(to.update);
  const auto moved = [rate](float running, double batch) {
    return static_cast<float>((1.0 - rate) * running + rate * batch);
  };
  to.mean[c] = static_cast<float>(moments.mean);
  to.inv_std[c] = static_cast<float>(1.0 / std::sqrt(moments.variance + to.epsilon));
  if (to.running_mean) to.running_mean[c] = moved(to.running_mean[c], moments.mean);
  if (to.running_variance) to.running_variance[c] = moved(to.running_variance[c], moments.variance * correction);
}

/// A normalised array that backward reads, and the values of each channel that z is made of.
template <class T>
struct Saved {
  const T* x;
  const float* mean;
  const float* inv_std;
  const float* factor;  // inv_std·scale
  const float* shift;
};

/// The values of a norm; its factor and shift go to `room` (2, channels).
template <class T>
Saved<T> saved_of(const NormOperand& norm, std::int64_t channels, float* room) {
  for (std::int64_t c = 0; c < channels; ++c) {
    room[c] = norm.inv_std[c] * scale_of(norm.affine, c);
    room[channels + c] = shift_of(norm.affine, c);
  }
  return {static_cast<const T*>(norm.x), norm.mean, norm.inv_std, room, room + channels};
}

/// dshift and dscale from the two totals a channel.
inline void store_gradients(const float* totals, std::int64_t channels, const VectorGradients& to) {
  for (std::int64_t c = 0; c < channels; ++c) {
    if (to.dshift) to.dshift[c] = totals[c] + (to.accumulate ? to.dshift[c] : 0.0f);
    if (to.dscale) to.dscale[c] = totals[channels + c] + (to.accumulate ? to.dscale[c] : 0.0f);
  }
}

/// Writes a block of dy right before it is read; may touch no row of another block.
using WriteDy = std::function<void(RowBlock)>;

/// Σ dz and Σ dz·x̂ a channel, to totals[0..channels) and totals[channels..). Without `write_dy` dy is there. One
/// function for all callers: which products and sums a compiler makes one rounding of may differ from copy to copy.
template <class T, class Function>
[[gnu::noinline]] void gradient_sums(const Exec& exec, const BatchNormShape& shape, const Saved<T>& saved, const T* dy,
                                     Function f, float* partials, float* totals, const WriteDy& write_dy = {}) {
  const std::int64_t parts = sum_parts(shape.rows, shape.channels, DeviceKind::cpu);
  const std::int64_t elements = shape.rows * shape.channels, step = sum_block_rows(shape.channels);
  const auto add_terms = [=](std::int64_t at, std::int64_t c, std::int64_t lanes, Float8* sum) {
    const Float8 v = load_lanes(saved.x + at, lanes, elements - at), mean = load_lanes(saved.mean + c, lanes);
    const Float8 z = linear(v, mean, load_lanes(saved.factor + c, lanes), load_lanes(saved.shift + c, lanes));
    const Float8 dz = load_lanes(dy + at, lanes, elements - at) * f.derivative(z);
    sum[0] += dz;
    sum[1] += dz * ((v - mean) * load_lanes(saved.inv_std + c, lanes));
  };
  parallel_parts(parts, exec.threads, [&](std::int64_t part) {
    const auto terms = add_terms;  // a copy that no other thread sees: what it holds may stay in registers
    const std::int64_t end = part_begin(shape.rows, parts, part + 1);
    float* sums[2] = {partials + part * 2 * shape.channels, partials + (part * 2 + 1) * shape.channels};
    std::fill(sums[0], sums[0] + 2 * shape.channels, 0.0f);
    for (std::int64_t r = part_begin(shape.rows, parts, part); r < end; r += step) {
      const RowBlock block{r, std::min(r + step, end)};
      if (write_dy) write_dy(block);
      sum_columns<2>(block, shape.channels, sums, terms);
    }
  });
  add_parts(partials, parts, 2 * shape.channels, totals, false, exec.threads);
}

/// dx = scale·inv_std·(dz - Σdz·per_row - x̂·Σ(dz·x̂)·per_row).
template <class T, class Function>
[[gnu::noinline]] void input_gradient_of(const Exec& exec, const BatchNormShape& shape, const Saved<T>& saved,
                                         const T* dy, Function f, const float* totals, float per_row, T* dx) {
  map_channels<6>(
      shape.rows, shape.channels, exec.threads,
      [&](std::int64_t c, float* p) {
        p[0] = saved.mean[c];
        p[1] = saved.inv_std[c];
        p[2] = saved.factor[c];
        p[3] = saved.shift[c];
        p[4] = totals[c] * per_row;
        p[5] = totals[shape.channels + c] * per_row;
      },
      [=](std::int64_t at, std::int64_t lanes, const Float8* p) {
        const Float8 v = load_lanes(saved.x + at, lanes);
        const Float8 dz = load_lanes(dy + at, lanes) * f.derivative(linear(v, p[0], p[2], p[3]));
        store_lanes(dx + at, lanes, p[2] * (dz - p[4] - ((v - p[0]) * p[1]) * p[5]));
      });
}

/// The same, of sums over these rows.
template <class T, class Function>
void input_gradient(const Exec& exec, const BatchNormShape& shape, const Saved<T>& saved, const T* dy, Function f,
                    const float* totals, T* dx) {
  input_gradient_of(exec, shape, saved, dy, f, totals, 1.0f / static_cast<float>(shape.rows), dx);
}

}  // namespace bantam::kernels::cpu
