// Work of matrix products.
#include "bantam/kernels/contracts/matmul/matmul.h"

#include "bantam/kernels/meta/work.h"

namespace bantam::kernels::meta {

void matmul(const Exec& exec, const MatmulShape& s, DType dtype, const void*, const void*, const MatmulOutput& c,
            Workspace) {
  const std::int64_t again = c.accumulate ? bytes_of(s.m * s.n, c.dtype) : 0;
  note(exec, "matmul",
       {.kind = KernelKind::product,
        .bytes = matmul_bytes(s, dtype, c.dtype) + again,
        .flops = matmul_flops(s),
        .matrix_flops = matmul_flops({.m = s.m, .n = s.n, .k = matrix_depth(s.k)})});
}

}  // namespace bantam::kernels::meta
