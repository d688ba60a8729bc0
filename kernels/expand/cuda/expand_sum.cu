// relu(norm(ã·wᵀ) + residual) on CUDA: one wgmma kernel, or rows in chunks, a GEMM into the workspace and the pass of
// batch_norm_add over what the second-level cache still holds.
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand.h"

namespace bantam::kernels::cuda {

void expand_sum(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& product, const void* w,
                const NormOperand& residual, void* y, std::uint8_t* mask, Workspace workspace) {
  require_workspace(workspace, expand_workspace_bytes(s, dtype, DeviceKind::cuda), "expand_sum");
  if (warpgroup_expand_sum(exec, s, dtype, product, w, residual, y, mask)) return;
  const std::size_t chunk_bytes = expand_chunk_bytes(s, dtype), row_bytes = s.out * size_of(dtype);
  char* const chunk = static_cast<char*>(workspace.data);
  const Workspace rest{chunk + chunk_bytes, workspace.bytes - chunk_bytes};
  const std::int64_t most = expand_chunk_rows(s);
  NormOperand c3 = product, other = residual;
  c3.x = chunk;
  for (std::int64_t first = 0; first < s.rows; first += most) {
    const std::int64_t rows = std::min(most, s.rows - first);
    matmul(exec, expand_chunk_product(s, rows), dtype,
           static_cast<const char*>(product.x) + first * s.in * size_of(dtype), w, {.data = chunk, .dtype = dtype},
           rest);
    other.x = static_cast<const char*>(residual.x) + first * row_bytes;
    batch_norm_add(exec, {Activation::relu}, {rows, s.out}, dtype, c3, other, static_cast<char*>(y) + first * row_bytes,
                   mask == nullptr ? nullptr : mask + first * s.out / 8);
  }
}

}  // namespace bantam::kernels::cuda
