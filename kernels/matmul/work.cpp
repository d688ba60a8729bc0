// Work of matrix products.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/matmul/matmul.h"

namespace bantam::kernels::work {
namespace {

void note_products(const Exec& exec, const char* kernel, const MatmulShape& s, std::int64_t count, DType dtype,
                   const MatmulOutput& c) {
  const std::int64_t again = c.accumulate ? bytes_of(s.m * s.n, c.dtype) : 0;
  const std::int64_t added =
      unless_null(c.bias, bytes_of(s.n, c.dtype)) + unless_null(c.residual, bytes_of(s.m * s.n, c.dtype));
  note(exec, kernel,
       {.kind = KernelKind::product,
        .bytes = count * (matmul_bytes(s, dtype, c.dtype) + again) + added,
        .flops = count * matmul_flops(s),
        .matrix_flops = count * matmul_flops({.m = s.m, .n = s.n, .k = matrix_depth(s.k)})});
}

}  // namespace

void matmul(const Exec& exec, const MatmulShape& s, DType dtype, const void*, const void*, const MatmulOutput& c,
            Workspace) {
  note_products(exec, "matmul", s, 1, dtype, c);
}

void batched_matmul(const Exec& exec, const MatmulShape& s, const MatmulBatch& batch, DType dtype, const void*,
                    const void*, const MatmulOutput& c, Workspace) {
  note_products(exec, "batched_matmul", s, batch.count, dtype, c);
}

}  // namespace bantam::kernels::work
