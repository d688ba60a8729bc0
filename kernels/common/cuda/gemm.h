// One matrix product on a GPU with explicit row strides: the building block of matmul and of convolution by patches.
#pragma once

#include <compare>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/exec.h"

namespace bantam::kernels::cuda {

/// C (m, n) = op(A)·op(B), row-major. Strides are elements between stored rows.
struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  DType dtype = DType::float32, out_dtype = DType::float32;
  std::size_t workspace_limit = 0;  ///< algorithms that need more are not eligible
  /// Products side by side, operands this many elements apart.
  std::int64_t batch = 1, a_batch_stride = 0, b_batch_stride = 0, c_batch_stride = 0;
  bool adds_bias = false;  ///< a vector (n) is added to each row of C, whose rows then lie one after another
  bool clips = false;      ///< for gemm_with_epilogue: what is below 0 is then 0
  auto operator<=>(const GemmProblem&) const = default;
};

/// Where a product's operands lie.
struct GemmOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  bool accumulate = false;
  const void* bias = nullptr;      ///< where the problem adds_bias; in C's type
  const void* residual = nullptr;  ///< like C, added before the bias; or null, as where C is added to
};

/// Runs on the current device in the order of `exec.stream`: cuBLASLt, or our own kernel where it has no algorithm.
/// Long sums of small results (weight gradients of pointwise convolutions) are cut into parts, by shapes only, added in
/// order. A bias is added to the float32 sums, or where cuBLASLt has no kernel for that, by a pass of its own. One
/// product only may have a bias or a residual.
void gemm(const Exec& exec, const GemmProblem& problem, const GemmOperands& operands, Workspace workspace);

/// C = op(A)·op(B) + residual + bias, clipped where the problem says so, in one call of cuBLASLt. False, having done
/// nothing, where it has no such kernel, or `gemm` would cut the sum.
bool gemm_with_epilogue(const Exec& exec, const GemmProblem& problem, const GemmOperands& operands,
                        Workspace workspace);

}  // namespace bantam::kernels::cuda
