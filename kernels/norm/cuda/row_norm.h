// Internal: norms on CUDA whose groups are rows of memory (is_row_norm): layer norms, and group norms of one position.
#pragma once

#include "bantam/kernels/norm/group_norm.h"

namespace bantam::kernels::cuda {

/// The results that a norm's forward writes.
struct GroupNormOutput {
  void* y = nullptr;         ///< null: not wanted
  float* mean = nullptr;     ///< (samples, groups); null: the operand's statistics are read
  float* inv_std = nullptr;  ///< (samples, groups)
  float epsilon = 0;
};

/// group_norm_forward, and group_norm_apply where `to.mean` is null.
void row_norm_forward(const Exec& exec, const GroupNormShape& shape, DType dtype, const NormOperand& norm,
                      const GroupNormOutput& to);

/// group_norm_backward; `partials` has room for most_row_parts(shape)·2·channels floats.
void row_norm_backward(const Exec& exec, const GroupNormShape& shape, DType dtype, const NormOperand& norm,
                       const void* dy, const void* addend, const NormGradients& to, float* partials);

}  // namespace bantam::kernels::cuda
