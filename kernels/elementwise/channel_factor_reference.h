// A factor a channel and its gradients as plain loops: the oracle of the tests.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/kernels/elementwise/channel_factor.h"

namespace bantam::kernels::reference {

template <class T>
std::vector<T> channel_factor_forward(const ChannelFactorShape& shape, const std::vector<T>& x,
                                      const std::vector<T>& s) {
  std::vector<T> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T factor = s[i % static_cast<std::size_t>(shape.channels) % s.size()];
    y[i] = shape.negative_only && x[i] > 0 ? x[i] : factor * x[i];
  }
  return y;
}

template <class T>
struct ChannelFactorGrads {
  std::vector<T> dx, ds;
};

template <class T>
ChannelFactorGrads<T> channel_factor_grad(const ChannelFactorShape& shape, const std::vector<T>& x,
                                          const std::vector<T>& s, const std::vector<T>& dy) {
  ChannelFactorGrads<T> out{std::vector<T>(x.size()), std::vector<T>(s.size(), T(0))};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % static_cast<std::size_t>(shape.channels) % s.size();
    const bool scaled = !(shape.negative_only && x[i] > 0);
    out.dx[i] = scaled ? s[c] * dy[i] : dy[i];
    if (scaled) out.ds[c] += x[i] * dy[i];
  }
  return out;
}

}  // namespace bantam::kernels::reference
