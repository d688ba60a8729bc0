// The constant that the input of an expanding convolution is shifted by.
#pragma once

#include <cmath>

#include "bantam/base/philox.h"  // BANTAM_HOST_DEVICE

namespace bantam::kernels {

/// About the mean of relu(scale·t + shift), t normal: |scale|·φ(r) + shift·Φ(r), r = shift/|scale|. Rounded to a
/// sixteenth of a power of two that is at least |scale| + |shift|, so that most differences from it are exact in half
/// types. 0 where scale or shift is not finite.
BANTAM_HOST_DEVICE inline float expand_origin(float scale, float shift) {
  const float deviation = fabsf(scale), largest = deviation + fabsf(shift);
  if (!(largest > 0.0f) || !(largest < 1e30f)) return 0.0f;
  const float ratio = deviation > 0.0f ? shift / deviation : shift > 0.0f ? 1e30f : -1e30f;
  const float density = 0.39894228f * expf(-0.5f * ratio * ratio), below = 0.5f * erfcf(-0.70710678f * ratio);
  int exponent = 0;
  (void)frexpf(largest, &exponent);
  const float unit = ldexpf(1.0f, exponent - 4);
  return rintf((deviation * density + shift * below) / unit) * unit;
}

}  // namespace bantam::kernels
