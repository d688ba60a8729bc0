// Test support: the operands of image_oracle.h's cases, and all that an image op computes from them.
#pragma once

#include <cmath>

#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/image/image_oracle.h"

namespace bantam::testing {

inline std::vector<float> wave(double (*function)(double), double step, double start, std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(function(step * static_cast<double>(i) + start)));
  return values;
}
inline std::vector<float> oracle_x(std::int64_t count) { return wave(std::sin, 0.7, 0.3, count); }
inline std::vector<float> oracle_dy(std::int64_t count) { return wave(std::cos, 0.9, 0.1, count); }

/// PyTorch's values to a few roundings of float32.
inline void expect_oracle(const std::vector<float>& y, const std::vector<float>& dx, const oracle::ImageCase& wanted) {
  expect_close(y, wanted.y, 2e-6);
  expect_close(dx, wanted.dx, 2e-6);
}

}  // namespace bantam::testing
