// The gradient checker: what a function records on the tape, against its central differences.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace bantam::testing {

/// A leaf whose gradient is wanted.
inline Tensor leaf(const Context& context, const Shape& shape, const std::vector<float>& values) {
  Tensor tensor = context.upload(shape, values.data());
  tensor.set_value_id(context.runtime->new_value_id());
  return tensor;
}

inline std::vector<float> gradient_of(const Context& context, GradientStore& store, const Tensor& tensor) {
  return to_host<float>(store.pop(tensor.value_id()), context.stream);
}

/// Directional derivative of Σ y·seed along a random direction, by central differences, against Σ dx·direction.
inline void expect_directional(const Context& base, const Shape& shape, float low, float high,
                               const std::function<Tensor(const Context&, const Tensor&)>& function, double tolerance) {
  const std::vector<float> x = random_floats(shape.elements(), 11, low, high);
  const std::vector<float> direction = random_floats(shape.elements(), 12);
  std::vector<float> seed;
  const auto value = [&](float t) {
    std::vector<float> moved = x;
    for (std::size_t i = 0; i < x.size(); ++i) moved[i] += t * direction[i];
    const std::vector<float> y = to_host<float>(function(base, base.upload(shape, moved.data())), base.stream);
    if (seed.empty()) seed = random_floats(static_cast<std::int64_t>(y.size()), 13);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * static_cast<double>(seed[i]);
    return sum;
  };
  (void)value(0);
  // Truncation falls with step², rounding grows with 1/step: 2^-6 balances them near 1e-4 for float32 values of order
  // one.
  constexpr float kStep = 1.0f / 64.0f;
  const double numeric = (value(kStep) - value(-kStep)) / (2.0 * kStep);
  Tape tape;
  Context ctx = base;
  ctx.tape = &tape;
  Tensor input = leaf(ctx, shape, x);
  const Tensor y = function(ctx, input);
  GradientStore store = tape.backward(ctx, y, ctx.upload(y.shape(), seed.data()));
  const std::vector<float> dx = gradient_of(ctx, store, input);
  double analytic = 0;
  for (std::size_t i = 0; i < dx.size(); ++i)
    analytic += static_cast<double>(dx[i]) * static_cast<double>(direction[i]);
  EXPECT_NEAR(numeric, analytic, tolerance * (std::abs(analytic) + 1));
}

}  // namespace bantam::testing
