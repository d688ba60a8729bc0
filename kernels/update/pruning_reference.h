// Magnitude pruning as its papers tell it, by sorting: the oracle of the tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace bantam::kernels::reference {

/// PolynomialDecay of TensorFlow Model Optimization, power 3.
inline double polynomial_sparsity(double initial, double final_sparsity, double begin, double end, double step) {
  const double p = std::clamp((step - begin) / (end - begin), 0.0, 1.0);
  return (initial - final_sparsity) * std::pow(1 - p, 3) + final_sparsity;
}

/// 1 for the weights whose magnitude is at least the round(n(1 - sparsity))-th largest.
inline std::vector<std::uint8_t> magnitude_mask(const std::vector<float>& w, double sparsity) {
  std::vector<float> sorted;
  for (const float value : w) sorted.push_back(std::abs(value));
  std::ranges::sort(sorted, std::greater<>());
  const auto kept = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(w.size()) * (1 - sparsity)));
  const float least = sorted[static_cast<std::size_t>(std::max<std::int64_t>(kept, 1) - 1)];
  std::vector<std::uint8_t> mask;
  for (const float value : w) mask.push_back(std::abs(value) >= least ? 1 : 0);
  return mask;
}

/// 1 for the two larger magnitudes of each four.
inline std::vector<std::uint8_t> two_of_four_mask(const std::vector<float>& w) {
  std::vector<std::uint8_t> mask(w.size(), 0);
  for (std::size_t first = 0; first + 4 <= w.size(); first += 4) {
    std::vector<std::size_t> order(4);
    std::iota(order.begin(), order.end(), first);
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return std::abs(w[a]) > std::abs(w[b]); });
    mask[order[0]] = mask[order[1]] = 1;
  }
  return mask;
}

}  // namespace bantam::kernels::reference
