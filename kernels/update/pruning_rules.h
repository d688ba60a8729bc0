// Backends of pruning and averaging share rules: when masks change, how many weights stay, which of four, how a rank
// is found digit by digit, and an average's share of the new value.
#pragma once

#include <cmath>
#include <cstdint>

#include "bantam/base/philox.h"
#include "bantam/kernels/update/pruning.h"
#include "bantam/kernels/update/weight_average.h"

namespace bantam::kernels {

/// Whether masks change after update `t`.
BANTAM_HOST_DEVICE inline bool masks_change(const PruneRule& rule, std::int64_t t) {
  if (t < rule.begin || t > rule.end) return false;
  return (t - rule.begin) % rule.frequency == 0 || t == rule.end || (t == 1 && rule.begin == 0);
}

/// Share of zeros after update `t`, begin <= t <= end.
BANTAM_HOST_DEVICE inline double sparsity_at(const PruneRule& rule, std::int64_t t) {
  if (!rule.polynomial || rule.end <= rule.begin) return rule.final_sparsity;
  const double left = static_cast<double>(rule.end - t) / static_cast<double>(rule.end - rule.begin);
  return rule.final_sparsity + (rule.initial - rule.final_sparsity) * left * left * left;
}

/// Weights of a tensor of `elements` that are not masked; at least one.
BANTAM_HOST_DEVICE inline std::int64_t weights_kept(std::int64_t elements, double sparsity) {
  const auto kept = static_cast<std::int64_t>(rint(static_cast<double>(elements) * (1.0 - sparsity)));
  return kept < 1 ? 1 : kept > elements ? elements : kept;
}

/// Masks of four neighbours, a byte each, the first in the lowest.
BANTAM_HOST_DEVICE inline std::uint32_t two_of_four_mask(const float (&w)[4]) {
  std::uint32_t mask = 0;
  for (int i = 0; i < 4; ++i) {
    int before = 0;  // neighbours that come first
    for (int j = 0; j < 4; ++j) {
      const float mine = fabsf(w[i]), other = fabsf(w[j]);
      before += other > mine || (other == mine && j < i) ? 1 : 0;
    }
    if (before < 2) mask |= 1u << (8 * i);
  }
  return mask;
}

/// A magnitude's 31 bits are ordered as the magnitude is. A rank is found in them by three digits, the highest first.
struct MagnitudeDigit {
  int shift = 0, bits = 0;
  BANTAM_HOST_DEVICE std::uint32_t of(std::uint32_t magnitude) const {
    return (magnitude >> shift) & ((1u << bits) - 1);
  }
  /// Whether the digits before this one are those of `prefix`.
  BANTAM_HOST_DEVICE bool follows(std::uint32_t magnitude, std::uint32_t prefix) const {
    return ((magnitude ^ prefix) >> shift >> bits) == 0;
  }
};
inline constexpr int kMagnitudeDigits = 3;
inline constexpr int kMagnitudeBins = 2048;  ///< the widest digit has so many values
BANTAM_HOST_DEVICE constexpr MagnitudeDigit magnitude_digit(int digit) {
  return digit == 0 ? MagnitudeDigit{20, 11} : digit == 1 ? MagnitudeDigit{10, 10} : MagnitudeDigit{0, 10};
}

/// Share of the new value in the average after update `t`: 1 at the first averaging; 0: it does not move.
BANTAM_HOST_DEVICE inline float average_share(const AverageRule& rule, std::int64_t t) {
  if (t <= 0 || t % rule.every != 0) return 0.0f;
  const std::int64_t k = t / rule.every;
  const auto share = static_cast<float>(1.0 - rule.decay);
  if (k == 1) return 1.0f;
  if (!rule.warms_up) return share;
  const float warm = powf(static_cast<float>(k), -2.0f / 3.0f);
  return warm > share ? warm : share;
}

/// a + share·(w - a) from the nearer end, as PyTorch's lerp has it, so that a share of 1 copies.
BANTAM_HOST_DEVICE inline float averaged(float a, float w, float share) {
  return share < 0.5f ? a + share * (w - a) : w - (w - a) * (1.0f - share);
}

}  // namespace bantam::kernels
