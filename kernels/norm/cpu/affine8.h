// Applies a batch norm to eight values, for the kernels that must get the same bits of it.
#pragma once

#include "bantam/kernels/common/cpu/float8.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels::cpu {

inline float scale_of(const BatchNormAffine& affine, std::int64_t c) { return affine.scale ? affine.scale[c] : 1.0f; }
inline float shift_of(const BatchNormAffine& affine, std::int64_t c) { return affine.shift ? affine.shift[c] : 0.0f; }

/// z = (x - mean)·(inv_std·scale) + shift.
[[gnu::always_inline]] inline Float8 linear(Float8 x, Float8 mean, Float8 factor, Float8 shift) {
  return (x - mean) * factor + shift;
}

}  // namespace bantam::kernels::cpu
