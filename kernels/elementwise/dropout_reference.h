// Dropout as the contract's formula, one element at a time: the oracle of the tests.
#pragma once

#include <cstdint>

#include "bantam/kernels/elementwise/dropout.h"

namespace bantam::kernels::reference {

/// Whether element e of sample s is kept in update number `update`.
inline bool dropout_keeps(const DropoutShape& shape, std::int64_t s, std::int64_t e, std::int64_t update) {
  const std::int64_t d = e % shape.row_draws();
  const PhiloxWords words =
      philox(shape.key, {{static_cast<std::uint32_t>(d / 4), static_cast<std::uint32_t>(shape.first_sample + s),
                          static_cast<std::uint32_t>(update), static_cast<std::uint32_t>(update >> 32)}});
  return uniform01(words.v[d % 4]) >= shape.rate;
}

/// Forward of x, and also the gradient: both multiply by 0 or 1/(1 - rate).
template <class T>
void dropout(const DropoutShape& shape, std::int64_t update, const T* x, T* y) {
  for (std::int64_t s = 0; s < shape.samples; ++s) {
    for (std::int64_t e = 0; e < shape.sample_elements; ++e) {
      const std::int64_t i = s * shape.sample_elements + e;
      y[i] = dropout_keeps(shape, s, e, update) ? x[i] / (T(1) - T(shape.rate)) : T(0);
    }
  }
}

}  // namespace bantam::kernels::reference
