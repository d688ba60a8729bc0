// Rows of a 3x3 depthwise convolution between norms on the CPU, for any vector width: what is read goes through a ring
// of a few normalised rows, what is written is summed up while it is in registers.
#pragma once

#include <limits>
#include <type_traits>

#include "bantam/kernels/depthwise/norm_depthwise_plan.h"
#include "bantam/kernels/norm/cpu/affine8.h"

// Vectors wider than the build's are passed by inlined functions only.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace bantam::kernels::cpu {

template <class V>
inline constexpr std::int64_t kLanesOf = sizeof(V) / sizeof(float);

/// A vector of floats, exactly, from any floating type.
template <class V, class T>
[[gnu::always_inline]] inline V load_as(const T* p) {
  if constexpr (std::is_same_v<T, float> || kLanesOf<V> == kLanes) {
    V v;
    if constexpr (std::is_same_v<T, float>) {
      std::memcpy(&v, p, sizeof(v));
    } else {
      v = load8(p);
    }
    return v;
  } else {
    return __builtin_shufflevector(load8(p), load8(p + kLanes), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
}

/// A vector to any floating type, rounded to nearest even.
template <class V, class T>
[[gnu::always_inline]] inline void store_as(T* p, const V& v) {
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(p, &v, sizeof(v));
  } else if constexpr (kLanesOf<V> == kLanes) {
    store8(p, v);
  } else {
    store8(p, __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7));
    store8(p + kLanes, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
  }
}

/// As it would be read after a store.
template <class T, class V>
[[gnu::always_inline]] inline V rounded_as(const V& v) {
  if constexpr (std::is_same_v<T, float>) return v;
  T values[kLanesOf<V>];
  store_as(values, v);
  return load_as<V>(values);
}

/// The values of a norm for each channel, and where its relu ends (infinity, or 6).
struct NormVectors {
  const float* mean = nullptr;
  const float* inv_std = nullptr;
  const float* factor = nullptr;  ///< inv_std·scale
  const float* shift = nullptr;
  const float* per_row[2] = {};  ///< Σdz/rows and Σ(dz·x̂)/rows, where its gradient is asked for
  float top = std::numeric_limits<float>::infinity();
};

template <class V>
[[gnu::always_inline]] inline V linear_at(const NormVectors& norm, const V& x, std::int64_t c) {
  return (x - load_as<V>(norm.mean + c)) * load_as<V>(norm.factor + c) + load_as<V>(norm.shift + c);
}
template <class V>
[[gnu::always_inline]] inline V clamp(const V& z, float top) {
  const V low = z < 0.0f ? V{} : z;
  return low > top ? V{} + top : low;
}
/// dy·f'(z). One select after the other: GCC splits two conditions at once into scalar code.
template <class V>
[[gnu::always_inline]] inline V clamp_gradient(const V& z, float top, const V& dy) {
  const V below_top = z < top ? z : V{};
  return below_top > 0.0f ? dy : V{};
}

/// A row of a ring: for each vector of channels, `columns` of them side by side; `block` floats from one vector of
/// channels to the next.
struct RingRow {
  float* data;
  std::int64_t block;
};

/// Row of x (columns, channels), normalised and rounded to its type, into the ring.
template <class T>
struct NormaliseRow {
  const T* x;
  std::int64_t columns, channels;  ///< elements from one column to the next
  std::int64_t count;              ///< channels that are asked for
  NormVectors norm;
  RingRow to;
};

template <class V, class T>
[[gnu::always_inline]] inline void normalise_row(const NormaliseRow<T>& row) {
  constexpr std::int64_t kWidth = kLanesOf<V>;
  for (std::int64_t column = 0; column < row.columns; ++column) {
    const T* x = row.x + column * row.channels;
    float* to = row.to.data + column * kWidth;
    for (std::int64_t c = 0; c < row.count; c += kWidth, to += row.to.block) {
      store_as(to, rounded_as<T>(clamp(linear_at(row.norm, load_as<V>(x + c), c), row.norm.top)));
    }
  }
}

/// Row of the gradient before a norm, from its input y and the gradient dy of its activation's output, into the ring.
template <class T>
struct GradientRow {
  const T* y;
  const T* dy;
  std::int64_t columns, channels, count;
  NormVectors norm;
  RingRow to;
};

template <class V, class T>
[[gnu::always_inline]] inline void gradient_row(const GradientRow<T>& row) {
  constexpr std::int64_t kWidth = kLanesOf<V>;
  const NormVectors& norm = row.norm;
  for (std::int64_t column = 0; column < row.columns; ++column) {
    const T *y = row.y + column * row.channels, *dy = row.dy + column * row.channels;
    float* to = row.to.data + column * kWidth;
    for (std::int64_t c = 0; c < row.count; c += kWidth, to += row.to.block) {
      const V centred = load_as<V>(y + c) - load_as<V>(norm.mean + c), factor = load_as<V>(norm.factor + c);
      const V z = centred * factor + load_as<V>(norm.shift + c);
      const V dz = clamp_gradient(z, norm.top, load_as<V>(dy + c));
      const V normalised = centred * load_as<V>(norm.inv_std + c);
      store_as(to, factor * (dz - load_as<V>(norm.per_row[0] + c) - normalised * load_as<V>(norm.per_row[1] + c)));
    }
  }
}

/// A row of y from three rows of a ring, and its moments merged into those of the `seen` values before it.
template <class T>
struct ConvolveRow {
  const float* rows[3];  ///< column 0
  std::int64_t block;    ///< floats from one block of the ring's channels to the next
  const T* w;            ///< (3, 3, channels)
  T* y;
  std::int64_t columns, channels, count;
  float* origin;  ///< the first value; `mean` is relative to it
  float* mean;
  float* squares;  ///< Σ of squared differences from the mean
  std::int64_t seen;
  std::int64_t ahead;  ///< elements from here to what is fetched for the next row: vectors of a column lie far apart
};

template <class V, int kStride>
[[gnu::always_inline]] inline V convolve_at(const float* const (&rows)[3], std::int64_t column, const V (&w)[3][3]) {
  V sum[3] = {};
#pragma GCC unroll 3
  for (int r = 0; r < 3; ++r) {
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) sum[r] += load_as<V>(rows[r] + (column * kStride + j) * kLanesOf<V>) * w[r][j];
  }
  return sum[0] + sum[1] + sum[2];
}

/// A row's sums, of differences from about the mean of the rows before it (`from`), merged into the moments.
template <class V, class T>
[[gnu::always_inline]] inline void merge_moments(const ConvolveRow<T>& row, std::int64_t c, const V& from, const V& sum,
                                                 const V& squares) {
  const auto count = static_cast<float>(row.columns), seen = static_cast<float>(row.seen);
  const V mean = load_as<V>(row.mean + c), shifted = sum / count;
  const V delta = (from - load_as<V>(row.origin + c) - mean) + shifted;
  store_as(row.mean + c, mean + delta * (count / (seen + count)));
  const V between = delta * delta * (seen * count / (seen + count));
  store_as(row.squares + c, load_as<V>(row.squares + c) + (squares - sum * shifted) + between);
}

/// Values are taken relative to the mean of what came before, and that to the first value, so that a mean that is large
/// beside the deviation costs no digits.
template <class V, int kStride, class T>
[[gnu::always_inline]] inline void convolve_row(const ConvolveRow<T>& row) {
  constexpr std::int64_t kWidth = kLanesOf<V>;
  for (std::int64_t c = 0; c < row.count; c += kWidth) {
    const std::int64_t block = c / kWidth * row.block;
    const float* const rows[3] = {row.rows[0] + block, row.rows[1] + block, row.rows[2] + block};
    V w[3][3];
#pragma GCC unroll 3
    for (int r = 0; r < 3; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) w[r][j] = load_as<V>(row.w + (r * 3 + j) * row.channels + c);
    }
    if (row.seen == 0) {
      store_as(row.origin + c, rounded_as<T>(convolve_at<V, kStride>(rows, 0, w)));
      store_as(row.mean + c, V{});
      store_as(row.squares + c, V{});
    }
    const V from = load_as<V>(row.origin + c) + load_as<V>(row.mean + c);
    V sum = {}, squares = {};
    for (std::int64_t o = 0; o < row.columns; ++o) {
      const V value = rounded_as<T>(convolve_at<V, kStride>(rows, o, w));
      T* y = row.y + o * row.channels + c;
      store_as(y, value);
      __builtin_prefetch(y + row.ahead, 1);
      const V difference = value - from;
      sum += difference;
      squares += difference * difference;
    }
    merge_moments(row, c, from, sum, squares);
  }
}

/// Row of x: the gradient of the output of the norm before, and its terms of the sums.
template <class T>
struct BackwardRow {
  const float* gradients[3];  ///< for each row of weights that meets this row: the ring's row, column 0
  std::int64_t block;
  const T* w[3];  ///< those rows of weights (3, channels)
  float* dw[3];
  const T* x;
  T* dz;
  std::int64_t columns, pad_left, channels, count;
  std::int64_t ahead;  ///< as in ConvolveRow
  NormVectors norm;
  float* dshift;
  float* dscale;
};

/// A vector of channels of a row of x, with R rows of weights.
template <class V, class T, int R>
struct BackwardBlock {
  V w[R][3], dw[R][3], mean, factor, shift, dshift, dscale;
  float top;

  /// One column: weights' columns of parity kPhase (stride 2), or all. `at`: the gradient that column 0 of the weights
  /// meets.
  template <int kStride, int kPhase>
  [[gnu::always_inline]] void visit(const float* const (&at)[R], const T* x, T* to) {
    const V centred = load_as<V>(x) - mean, z = centred * factor + shift, seen = rounded_as<T>(clamp(z, top));
    V sum[R] = {};
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        if (kStride == 2 && j % 2 != kPhase) continue;
        const V gradient = load_as<V>(at[r] - j / kStride * kLanesOf<V>);
        sum[r] += gradient * w[r][j];
        dw[r][j] += gradient * seen;
      }
    }
#pragma GCC unroll 3
    for (int r = 1; r < R; ++r) sum[0] += sum[r];
    const V dz = rounded_as<T>(clamp_gradient(z, top, sum[0]));
    store_as(to, dz);
    dshift += dz;
    dscale += dz * centred;
  }
};

template <class V, int kStride, int R, class T>
[[gnu::always_inline]] inline void backward_row(const BackwardRow<T>& row) {
  constexpr std::int64_t kWidth = kLanesOf<V>;
  const auto add = [](float* to, const V& v) __attribute__((always_inline)) { store_as(to, load_as<V>(to) + v); };
  for (std::int64_t c = 0; c < row.count; c += kWidth) {
    BackwardBlock<V, T, R> block;
    block.mean = load_as<V>(row.norm.mean + c), block.factor = load_as<V>(row.norm.factor + c);
    block.shift = load_as<V>(row.norm.shift + c), block.top = row.norm.top;
    block.dshift = block.dscale = V{};
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) block.w[r][j] = load_as<V>(row.w[r] + j * row.channels + c), block.dw[r][j] = V{};
    }
    const T* x = row.x + c;
    T* dz = row.dz + c;
    for (std::int64_t column = 0; column < row.columns; ++column, x += row.channels, dz += row.channels) {
      const std::int64_t padded = column + row.pad_left;
      __builtin_prefetch(x + row.ahead);
      __builtin_prefetch(dz + row.ahead, 1);
      const float* at[R];
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) at[r] = row.gradients[r] + c / kWidth * row.block + padded / kStride * kWidth;
      if (kStride == 2 && padded % 2 != 0) {
        block.template visit<kStride, 1>(at, x, dz);
      } else {
        block.template visit<kStride, 0>(at, x, dz);
      }
    }
    add(row.dshift + c, block.dshift);
    add(row.dscale + c, block.dscale * load_as<V>(row.norm.inv_std + c));
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) add(row.dw[r] + j * row.channels + c, block.dw[r][j]);
    }
  }
}

}  // namespace bantam::kernels::cpu
