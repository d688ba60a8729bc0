// Group normalisation as plain loops (two passes over each group): the oracle of the tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/norm/batch_norm_reference.h"
#include "bantam/kernels/norm/group_norm.h"

namespace bantam::kernels::reference {

/// Calls visit(index, channel) for the elements of sample s and group g.
template <class Visit>
void for_group(const GroupNormShape& shape, std::int64_t s, std::int64_t g, Visit&& visit) {
  const std::int64_t width = shape.group_channels();
  for (std::int64_t p = 0; p < shape.positions; ++p)
    for (std::int64_t c = g * width; c < (g + 1) * width; ++c)
      visit(static_cast<std::size_t>((s * shape.positions + p) * shape.channels + c), static_cast<std::size_t>(c));
}

/// Calls group(s, g, i) for every sample and group, i counting them.
template <class Group>
void for_groups(const GroupNormShape& shape, Group&& group) {
  for (std::int64_t s = 0; s < shape.samples; ++s)
    for (std::int64_t g = 0; g < shape.groups; ++g) group(s, g, static_cast<std::size_t>(s * shape.groups + g));
}

/// y (samples, positions, channels), the rest (samples, groups).
template <class T>
struct GroupNormOutput {
  std::vector<T> y, mean, inv_std;
};

template <class T>
GroupNormOutput<T> group_norm_forward(const GroupNormShape& shape, const std::vector<T>& x, const Affine<T>& affine,
                                      T epsilon) {
  const auto groups = static_cast<std::size_t>(shape.samples * shape.groups);
  GroupNormOutput<T> out{std::vector<T>(x.size()), std::vector<T>(groups), std::vector<T>(groups)};
  const T count = T(shape.positions * shape.group_channels());
  for_groups(shape, [&](std::int64_t s, std::int64_t g, std::size_t i) {
    T sum = 0, squares = 0;
    for_group(shape, s, g, [&](std::size_t at, std::size_t) { sum += x[at]; });
    const T mean = sum / count;
    for_group(shape, s, g, [&](std::size_t at, std::size_t) { squares += (x[at] - mean) * (x[at] - mean); });
    out.mean[i] = mean;
    out.inv_std[i] = T(1) / std::sqrt(squares / count + epsilon);
    for_group(shape, s, g,
              [&](std::size_t at, std::size_t c) { out.y[at] = affine(c, (x[at] - mean) * out.inv_std[i]); });
  });
  return out;
}

/// dx like x, dscale and dshift (channels), from the statistics that forward saved.
template <class T>
BatchNormGradients<T> group_norm_backward(const GroupNormShape& shape, const std::vector<T>& x,
                                          const std::vector<T>& dy, const Affine<T>& affine, const std::vector<T>& mean,
                                          const std::vector<T>& inv_std) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  BatchNormGradients<T> out{std::vector<T>(x.size()), std::vector<T>(channels), std::vector<T>(channels)};
  const T count = T(shape.positions * shape.group_channels());
  for_groups(shape, [&](std::int64_t s, std::int64_t g, std::size_t i) {
    const auto normalised = [&](std::size_t at) { return (x[at] - mean[i]) * inv_std[i]; };
    const auto dz = [&](std::size_t at, std::size_t c) { return dy[at] * affine.derivative(c, normalised(at)); };
    T sum = 0, products = 0;
    for_group(shape, s, g, [&](std::size_t at, std::size_t c) {
      out.dshift[c] += dz(at, c);
      out.dscale[c] += dz(at, c) * normalised(at);
      sum += affine.scale_at(c) * dz(at, c);
      products += affine.scale_at(c) * dz(at, c) * normalised(at);
    });
    for_group(shape, s, g, [&](std::size_t at, std::size_t c) {
      out.dx[at] = inv_std[i] * (affine.scale_at(c) * dz(at, c) - sum / count - normalised(at) * products / count);
    });
  });
  return out;
}

}  // namespace bantam::kernels::reference
