// Activations on the CPU: one vectorised loop a function. gelu calls libm: erfc has no cheap form.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/elementwise/activation.h"

#include "bantam/kernels/common/cpu/blocks.h"
#include "bantam/kernels/elementwise/cpu/activation_blocks.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"

namespace bantam::kernels::cpu {
namespace {

template <class Function>
void loop(const float* x, float* y, std::int64_t n, Function f) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
}

template <class Slope>
void loop_grad(const float* saved, const float* dy, float* dx, std::int64_t n, Slope f) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * f(saved[i]);
}

}  // namespace

void activation_values(Activation activation, float slope, const float* x, float* y, std::int64_t n) {
  switch (activation) {
    case Activation::none:
      return loop(x, y, n, [](float v) { return v; });
    case Activation::relu:
      return loop(x, y, n, [](float v) { return v < 0 ? 0.0f : v; });
    case Activation::relu6:
      return loop(x, y, n, [](float v) { return v < 0 ? 0.0f : v > 6 ? 6.0f : v; });
    case Activation::leaky_relu:
      return loop(x, y, n, [slope](float v) { return v < 0 ? slope * v : v; });
    case Activation::gelu:
      return loop(x, y, n, [](float v) { return v * normal_cdf(v); });
    case Activation::silu:
      return loop(x, y, n, [](float v) { return v * sigmoid(v); });
    case Activation::sigmoid:
      return loop(x, y, n, [](float v) { return sigmoid(v); });
    case Activation::tanh:
      return loop(x, y, n, [](float v) { return tanh_bounded(v); });
    case Activation::elu:
      return loop(x, y, n, [slope](float v) { return elu(v, slope); });
    case Activation::selu:
      return loop(x, y, n, [](float v) { return selu(v); });
    case Activation::mish:
      return loop(x, y, n, [](float v) { return mish(v); });
    case Activation::hard_swish:
      return loop(x, y, n, [](float v) { return v * hard_sigmoid(v); });
    case Activation::hard_sigmoid:
      return loop(x, y, n, [](float v) { return hard_sigmoid(v); });
    case Activation::softplus:
      return loop(x, y, n, [](float v) { return softplus(v); });
  }
}

void activation_slopes(Activation activation, float slope, const float* saved, const float* dy, float* dx,
                       std::int64_t n) {
  const auto apply = [&](auto f) { loop_grad(saved, dy, dx, n, f); };
  switch (activation) {
    case Activation::none:
      return apply([](float) { return 1.0f; });
    case Activation::relu:
      return apply([](float y) { return y > 0 ? 1.0f : 0.0f; });
    case Activation::relu6:
      return apply([](float y) { return ((y > 0) & (y < 6)) ? 1.0f : 0.0f; });
    case Activation::leaky_relu:
      return apply([slope](float y) { return y > 0 ? 1.0f : slope; });
    case Activation::gelu:
      return apply([](float x) { return gelu_slope(x); });
    case Activation::silu:
      return apply([](float x) { return silu_slope(x); });
    case Activation::sigmoid:
      return apply([](float y) { return y * (1.0f - y); });
    case Activation::tanh:
      return apply([](float y) { return 1.0f - y * y; });
    case Activation::elu:
      return apply([slope](float y) { return elu_slope(y, slope); });
    case Activation::selu:
      return apply([](float y) { return selu_slope(y); });
    case Activation::mish:
      return apply([](float x) { return mish_slope(x); });
    case Activation::hard_swish:
      return apply([](float x) { return hard_swish_slope(x); });
    case Activation::hard_sigmoid:
      return apply([](float y) { return hard_sigmoid_slope(y); });
    case Activation::softplus:
      return apply([](float y) { return softplus_slope(y); });
  }
}

void activation_forward(const Exec& exec, Activation activation, float slope, std::int64_t count, DType dtype,
                        const void* x, void* y) {
  map_elements(exec, count, dtype, x, y, [&](const float* from, float* to, std::int64_t n) {
    activation_values(activation, slope, from, to, n);
  });
}

void activation_grad(const Exec& exec, Activation activation, float slope, std::int64_t count, DType dtype,
                     const void* saved, const void* dy, void* dx) {
  map_elements(exec, count, dtype, saved, dy, dx, [&](const float* s, const float* up, float* down, std::int64_t n) {
    activation_slopes(activation, slope, s, up, down, n);
  });
}

}  // namespace bantam::kernels::cpu
