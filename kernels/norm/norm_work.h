// Internal: bytes of a normalised operand.
#pragma once

#include "bantam/kernels/common/work.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels::work {

/// The vectors that a normalised operand is read with.
inline std::int64_t norm_bytes(const NormOperand& norm, std::int64_t channels) {
  return vector_bytes(channels, norm.affine.scale, norm.affine.shift, norm.mean, norm.inv_std);
}

}  // namespace bantam::kernels::work
