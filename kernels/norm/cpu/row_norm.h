// Norms whose groups are rows of memory, on the CPU: layer norms, and group norms of one position. A row stays in the
// first-level cache from its moments to its output.
#pragma once

#include <cmath>

#include "bantam/kernels/common/cpu/column_sums.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"
#include "bantam/kernels/norm/cpu/affine8.h"
#include "bantam/kernels/norm/group_norm.h"

namespace bantam::kernels::cpu {

[[gnu::always_inline]] inline double sum_of(Float8 v) {
  double sum = 0;
  for (std::int64_t i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

/// Σ term(eight values) over x[0..count), in double between blocks of a few thousand values.
template <class T, class Term>
[[gnu::always_inline]] inline double row_sum(const T* x, std::int64_t count, Term&& term) {
  constexpr std::int64_t kBlock = 4096;
  double sum = 0;
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t end = std::min(first + kBlock, count);
    Float8 block = {};
    for (std::int64_t i = first; i < end; i += kLanes) {
      const std::int64_t lanes = std::min(kLanes, end - i);
      Float8 values = term(load_lanes(x + i, lanes));
      for (std::int64_t lane = lanes; lane < kLanes; ++lane) values[lane] = 0;  // the row ends before them
      block += values;
    }
    sum += sum_of(block);
  }
  return sum;
}

/// The statistics of one row, relative to its first value, so that a mean that is large beside the deviation costs no
/// digits.
template <class T>
inline void row_statistics(const T* x, std::int64_t count, float epsilon, float& mean, float& inv_std) {
  const auto origin = static_cast<float>(x[0]);
  const auto n = static_cast<double>(count);
  const double apart = row_sum(x, count, [=](Float8 v) { return v - origin; }) / n;
  const auto middle = static_cast<float>(apart);
  const double squares = row_sum(x, count, [=](Float8 v) {
    const Float8 difference = (v - origin) - middle;
    return difference * difference;
  });
  mean = static_cast<float>(origin + apart);
  inv_std = static_cast<float>(1.0 / std::sqrt(squares / n + epsilon));
}

/// A norm over rows of memory: (samples, groups) rows of `width` values.
template <class T>
struct RowNorm {
  GroupNormShape shape;
  const T* x;
  BatchNormAffine affine;

  std::int64_t width() const { return shape.group_channels(); }
  /// Eight factors or shifts from channel c on.
  [[gnu::always_inline]] Float8 scale(std::int64_t c, std::int64_t lanes) const {
    return affine.scale ? load_lanes(affine.scale + c, lanes) : broadcast8(1.0f);
  }
  [[gnu::always_inline]] Float8 shift(std::int64_t c, std::int64_t lanes) const {
    return affine.shift ? load_lanes(affine.shift + c, lanes) : Float8{};
  }

  /// y = f(z) of row `row`.
  void normalise(std::int64_t row, float mean, float inv_std, T* y) const {
    with_activation8<T>(affine.activation, [&](auto f) { normalise_by(f, row, mean, inv_std, y); });
  }
  /// One function for all callers: which products and sums a compiler makes one rounding of may differ from copy to
  /// copy.
  template <class Function>
  [[gnu::noinline]] void normalise_by(Function f, std::int64_t row, float mean, float inv_std, T* y) const {
    const std::int64_t n = width(), first = row * n, c0 = row % shape.groups * n;
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const std::int64_t lanes = std::min(kLanes, n - i);
      const Float8 factor = inv_std * scale(c0 + i, lanes);
      const Float8 v = load_lanes(x + first + i, lanes);
      store_lanes(y + first + i, lanes, f(linear(v, broadcast8(mean), factor, shift(c0 + i, lanes))));
    }
  }
};

/// The gradient of a RowNorm, a row at a time.
template <class T>
struct RowNormGradient {
  RowNorm<T> norm;
  const float *mean, *inv_std;  // (samples, groups)
  const T* dy;
  const T* addend;  // or null
  T* dx;

  /// dz and x̂ of eight values; dz is 0 where there are none.
  struct Terms {
    Float8 dz, normalised, scale;
  };
  template <class Function>
  [[gnu::always_inline]] Terms terms(const Function& f, std::int64_t row, std::int64_t i, std::int64_t lanes) const {
    const std::int64_t at = row * norm.width() + i, c = row % norm.shape.groups * norm.width() + i;
    const Float8 scale = norm.scale(c, lanes), middle = broadcast8(mean[row]);
    const Float8 v = load_lanes(norm.x + at, lanes);
    const Float8 z = linear(v, middle, inv_std[row] * scale, norm.shift(c, lanes));
    return {load_lanes(dy + at, lanes) * f.derivative(z), (v - middle) * inv_std[row], scale};
  }

  /// dx of one row, and its terms of dshift and dscale, added to sums (2, channels).
  void row(std::int64_t row, float* sums) const {
    with_activation8<T>(norm.affine.activation, [&](auto f) { row_by(f, row, sums); });
  }
  template <class Function>
  [[gnu::noinline]] void row_by(Function f, std::int64_t row, float* sums) const {
    const std::int64_t n = norm.width(), c0 = row % norm.shape.groups * n;
    Float8 sum = {}, products = {};
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const std::int64_t lanes = std::min(kLanes, n - i);
      const Terms t = terms(f, row, i, lanes);
      sum += t.scale * t.dz;
      products += t.scale * t.dz * t.normalised;
      float *shift = sums + c0 + i, *scale = shift + norm.shape.channels;
      store_lanes(shift, lanes, load_lanes(shift, lanes) + t.dz);
      store_lanes(scale, lanes, load_lanes(scale, lanes) + t.dz * t.normalised);
    }
    if (dx == nullptr) return;
    const float a = static_cast<float>(sum_of(sum) / static_cast<double>(n));
    const float b = static_cast<float>(sum_of(products) / static_cast<double>(n));
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const std::int64_t lanes = std::min(kLanes, n - i);
      const Terms t = terms(f, row, i, lanes);
      Float8 gradient = inv_std[row] * (t.scale * t.dz - a - t.normalised * b);
      if (addend != nullptr) gradient += load_lanes(addend + row * n + i, lanes);
      store_lanes(dx + row * n + i, lanes, gradient);
    }
  }
};

/// Rows of all samples of a part, a few at a time: their sums are added to the part's (2, channels) together, which
/// keeps rounding errors small. `block` (2, channels) is scratch.
template <class Gradient>
void row_gradients(const Gradient& gradient, RowBlock samples, float* part, float* block) {
  const GroupNormShape& shape = gradient.norm.shape;
  const std::int64_t step = sum_block_rows(shape.channels), count = 2 * shape.channels;
  std::fill(part, part + count, 0.0f);
  for (std::int64_t first = samples.begin; first < samples.end; first += step) {
    std::fill(block, block + count, 0.0f);
    const std::int64_t end = std::min(first + step, samples.end);
    for (std::int64_t row = first * shape.groups; row < end * shape.groups; ++row) gradient.row(row, block);
    for (std::int64_t i = 0; i < count; ++i) part[i] += block[i];
  }
}

}  // namespace bantam::kernels::cpu
