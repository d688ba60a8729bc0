// The activations over arrays of floats on the CPU, one vectorised loop a function, for kernels that apply one to what
// they have read.
#pragma once

#include <cstdint>

#include "bantam/kernels/elementwise/activation.h"

namespace bantam::kernels::cpu {

/// y = f(x), n values; y may be x.
void activation_values(Activation activation, float slope, const float* x, float* y, std::int64_t n);
/// dx = dy·f'(·), from x or y as activation_grad_reads_input says; dx may be dy.
void activation_slopes(Activation activation, float slope, const float* saved, const float* dy, float* dx,
                       std::int64_t n);

}  // namespace bantam::kernels::cpu
