// Joining and weighing arrays, as plain loops: the oracle of the tests.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/kernels/join/channel_scale.h"

namespace bantam::kernels::reference {

/// y[r, …] = inputs[0][r, …], inputs[1][r, …], …
template <class T>
std::vector<T> concat(std::int64_t rows, const std::vector<std::vector<T>>& inputs) {
  std::vector<T> y;
  for (std::int64_t r = 0; r < rows; ++r)
    for (const std::vector<T>& input : inputs) {
      const std::int64_t width = static_cast<std::int64_t>(input.size()) / rows;
      y.insert(y.end(), input.begin() + r * width, input.begin() + (r + 1) * width);
    }
  return y;
}

template <class T>
std::vector<T> mean_of(const std::vector<std::vector<T>>& inputs) {
  std::vector<T> y(inputs.front().size(), T(0));
  for (const std::vector<T>& input : inputs)
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += input[i];
  for (T& v : y) v /= static_cast<T>(inputs.size());
  return y;
}

template <class T>
std::vector<T> multiply(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> y(a.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[i] * b[i];
  return y;
}

/// Element i of x belongs to this factor.
inline std::size_t factor_of(const ChannelScaleShape& s, std::int64_t i) {
  return static_cast<std::size_t>(i / (s.positions * s.channels) * s.channels + i % s.channels);
}

/// y = x·factor + offset; an empty offset is 0.
template <class T>
std::vector<T> channel_scale_forward(const ChannelScaleShape& s, const std::vector<T>& x, const std::vector<T>& factor,
                                     const std::vector<T>& offset = {}) {
  std::vector<T> y(x.size());
  for (std::int64_t i = 0; i < s.elements(); ++i) {
    const std::size_t f = factor_of(s, i);
    y[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>(i)] * factor[f] + (offset.empty() ? T(0) : offset[f]);
  }
  return y;
}

/// dfactor = Σ_p dy·x.
template <class T>
std::vector<T> channel_scale_grad_factor(const ChannelScaleShape& s, const std::vector<T>& x,
                                         const std::vector<T>& dy) {
  std::vector<T> sums(static_cast<std::size_t>(s.factors()), T(0));
  for (std::int64_t i = 0; i < s.elements(); ++i)
    sums[factor_of(s, i)] += x[static_cast<std::size_t>(i)] * dy[static_cast<std::size_t>(i)];
  return sums;
}

}  // namespace bantam::kernels::reference
