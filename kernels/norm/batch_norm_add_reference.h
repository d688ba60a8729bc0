// The sum over batch norms as a plain loop: the oracle of the tests.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/kernels/elementwise/masked_activation_reference.h"
#include "bantam/kernels/norm/batch_norm_reference.h"

namespace bantam::kernels::reference {

/// An operand; without a mean it is x itself.
template <class T>
struct NormOperand {
  std::vector<T> x;
  Affine<T> affine;
  std::vector<T> mean, inv_std;

  std::vector<T> values() const {
    if (mean.empty()) return x;
    std::vector<T> z;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i % mean.size();
      z.push_back(affine.linear(c, (x[i] - mean[c]) * inv_std[c]));
    }
    return z;
  }
};

template <class T>
MaskedActivation<T> batch_norm_add(ActivationFunction f, const NormOperand<T>& a, const NormOperand<T>& b) {
  return masked_activation_forward(f, a.values(), b.values());
}

}  // namespace bantam::kernels::reference
