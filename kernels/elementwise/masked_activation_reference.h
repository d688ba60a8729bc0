// Masked activations as a plain loop: the oracle of the tests.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/kernels/elementwise/activation_reference.h"
#include "bantam/kernels/elementwise/masked_activation.h"

namespace bantam::kernels::reference {

/// y, and whether f' is 1, of each element of a + b (b may be empty).
template <class T>
struct MaskedActivation {
  std::vector<T> y;
  std::vector<bool> rises;
};

template <class T>
MaskedActivation<T> masked_activation_forward(ActivationFunction f, const std::vector<T>& a, const std::vector<T>& b) {
  MaskedActivation<T> out;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const T sum = b.empty() ? a[i] : a[i] + b[i];
    out.y.push_back(activate(f.kind, T(f.slope), sum));
    out.rises.push_back(activation_derivative(f.kind, T(f.slope), sum) == T(1));
  }
  return out;
}

}  // namespace bantam::kernels::reference
