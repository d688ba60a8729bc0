// Matrix product, row-major: dense layers, pointwise convolutions, and their gradients.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// C (m, n) = op(A) · op(B), op(A) (m, k), op(B) (k, n). A is stored (m, k), or (k, m) where transpose_a; B likewise.
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
};

/// Scratch bytes; depends on shape, types and the target only.
std::size_t matmul_workspace_bytes(const MatmulShape& shape, DType dtype, DType out_dtype, DeviceKind target);
/// 2·m·n·k.
std::int64_t matmul_flops(const MatmulShape& shape);
/// Bytes read and written once each.
std::int64_t matmul_bytes(const MatmulShape& shape, DType dtype, DType out_dtype);

/// Throws DTypeError for types that matmul does not support.
void check_matmul_types(DType dtype, DType out_dtype);

/// Where C goes, and what is added to the product before it is rounded to C's type.
struct MatmulOutput {
  void* data = nullptr;            ///< (m, n), of `dtype`
  DType dtype = DType::float32;    ///< that of A and B, or float32
  bool accumulate = false;         ///< C is added to, not overwritten
  const void* bias = nullptr;      ///< (n), of `dtype`, added to each row; or null
  const void* residual = nullptr;  ///< (m, n), of `dtype`, which is not C; or null, as where C is added to
};

/// Throws Error for a residual of a C that is added to, and for a bias or a residual of several products.
void check_matmul_output(const MatmulOutput& c, std::int64_t products);

/// C = op(A)·op(B) + bias + residual, or C += op(A)·op(B) + bias where it accumulates. A and B are `dtype` (float32,
/// float16, bfloat16). float32 sums (no TF32), rounded once; where cuBLASLt has no kernel that adds the bias, a pass
/// after the product adds it, and rounds again. C aliases no input. Asynchronous on CUDA; deterministic.
using Matmul = void(const Exec&, const MatmulShape&, DType dtype, const void* a, const void* b, const MatmulOutput& c,
                    Workspace);

/// Products of one shape: each operand lies this many elements after that of the product before. Where there are more
/// than one, multiples of 16 bytes.
struct MatmulBatch {
  std::int64_t count = 1, a_stride = 0, b_stride = 0, c_stride = 0;
};

/// Throws ShapeError for a count below 1 and for strides that are no multiples of 16 bytes.
void check_matmul_batch(const MatmulBatch& batch, DType dtype, DType out_dtype);

/// `matmul` of each product of the batch, in one launch on CUDA; without bias and residual. No C overlaps another or an
/// input. Workspace as for one product.
using BatchedMatmul = void(const Exec&, const MatmulShape&, const MatmulBatch&, DType dtype, const void* a,
                           const void* b, const MatmulOutput& c, Workspace);

BANTAM_DECLARE_KERNEL(Matmul, matmul);
BANTAM_DECLARE_KERNEL(BatchedMatmul, batched_matmul);

}  // namespace bantam::kernels
