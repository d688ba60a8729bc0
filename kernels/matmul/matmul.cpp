// Sizes of matrix products: workspace by backend, operations and bytes.
#include "bantam/kernels/matmul/matmul.h"

#include <fmt/core.h>

#include "bantam/kernels/matmul/matmul_plan.h"
#include "bantam/kernels/matmul/workspace_rules.h"

namespace bantam::kernels {

std::size_t matmul_workspace_bytes(const MatmulShape& shape, DType dtype, DType out_dtype, DeviceKind target) {
  check_matmul_types(dtype, out_dtype);
  if (shape.m == 0 || shape.n == 0) return 0;
  if (target == DeviceKind::cuda) return cuda::matmul_workspace_rule(shape);
  return cpu::plan_matmul(shape, dtype, out_dtype).workspace_bytes();
}

std::int64_t matmul_flops(const MatmulShape& shape) { return 2 * shape.m * shape.n * shape.k; }

std::int64_t matmul_bytes(const MatmulShape& shape, DType dtype, DType out_dtype) {
  return (shape.m * shape.k + shape.k * shape.n) * static_cast<std::int64_t>(size_of(dtype)) +
         shape.m * shape.n * static_cast<std::int64_t>(size_of(out_dtype));
}

void check_matmul_types(DType dtype, DType out_dtype) {
  const bool known = dtype == DType::float32 || is_half(dtype);
  if (known && (out_dtype == dtype || out_dtype == DType::float32)) return;
  throw DTypeError(
      fmt::format("matmul: operands are {} and the result {}; expected float32, float16 or bfloat16, and a "
                  "result of the same type or float32",
                  to_string(dtype), to_string(out_dtype)));
}

void check_matmul_output(const MatmulOutput& c, std::int64_t products) {
  if (c.residual != nullptr && c.accumulate)
    throw Error("matmul: a residual and a result that is added to; expected one of them");
  if (products > 1 && (c.bias != nullptr || c.residual != nullptr))
    throw Error(fmt::format("matmul: a bias or a residual of {} products; expected one product", products));
}

void check_matmul_batch(const MatmulBatch& batch, DType dtype, DType out_dtype) {
  if (batch.count < 1)
    throw ShapeError(fmt::format("matmul: a batch of {} products; expected at least 1", batch.count));
  const auto aligned = [](std::int64_t stride, DType type) {
    return stride * static_cast<std::int64_t>(size_of(type)) % 16 == 0;
  };
  if (batch.count == 1 ||
      (aligned(batch.a_stride, dtype) && aligned(batch.b_stride, dtype) && aligned(batch.c_stride, out_dtype))) {
    return;
  }
  throw ShapeError(
      fmt::format("matmul: products of a batch lie {}, {} and {} elements apart; expected multiples of 16 "
                  "bytes of {} and {}",
                  batch.a_stride, batch.b_stride, batch.c_stride, to_string(dtype), to_string(out_dtype)));
}

}  // namespace bantam::kernels
