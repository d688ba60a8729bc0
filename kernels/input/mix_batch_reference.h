// Mixed pairs element by element, as the contract's formulas: the oracle of the tests.
#pragma once

#include <cstdint>

#include "bantam/kernels/input/mix_batch.h"

namespace bantam::kernels::reference {

/// Volatile: products are rounded before the sum, so that T = float computes the contract's bits.
template <class T>
T mixed(float share, T own, T other) {
  volatile T first = T(share) * own;
  volatile T second = T(1.0f - share) * other;
  return first + second;
}

/// `y` gets what becomes of `x`.
template <class T>
void mix_images(const MixShape& s, const SampleMix* mixes, const T* x, T* y) {
  const std::int64_t values = s.height * s.width * s.channels;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const SampleMix& mix = mixes[b];
    const bool alone = 2 * b + 1 == s.batch;
    const bool cut = mix.top < mix.bottom && mix.left < mix.right;
    for (std::int64_t k = 0; k < values; ++k) {
      const std::int64_t i = k / (s.width * s.channels), j = k / s.channels % s.width;
      const bool inside = i >= mix.top && i < mix.bottom && j >= mix.left && j < mix.right;
      const T own = x[b * values + k], other = x[(s.batch - 1 - b) * values + k];
      y[b * values + k] = alone               ? own
                          : cut               ? (inside ? other : own)
                          : mix.share == 1.0f ? own
                                              : mixed(mix.share, own, other);
    }
  }
}

/// `from` is labels as one-hot rows, or targets.
template <class T>
void mix_targets(const TargetMixShape& s, const SampleMix* mixes, const T* from, T* y) {
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const float share = mixes != nullptr && 2 * b + 1 != s.batch ? mixes[b].share : 1.0f;
    for (std::int64_t c = 0; c < s.classes; ++c) {
      const T own = from[b * s.classes + c], other = from[(s.batch - 1 - b) * s.classes + c];
      T q = share == 1.0f ? own : mixed(share, own, other);
      if (s.smoothing > 0.0f) {
        volatile T scaled = T(1.0f - s.smoothing) * q;
        q = T(s.smoothing / static_cast<float>(s.classes)) + scaled;
      }
      y[b * s.classes + c] = q;
    }
  }
}

}  // namespace bantam::kernels::reference
