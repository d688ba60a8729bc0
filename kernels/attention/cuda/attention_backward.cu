// Attention backward on CUDA: which kernels a shape gets.
#include "bantam/kernels/attention/cuda/attention_fma.cuh"
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/common/workspace_layout.h"

namespace bantam::kernels::cuda {
namespace {

template <class T, int kSize, int kRows>
void launch_fma(const Exec& exec, const AttentionShape& shape, const AttentionSaved& saved, const void* dout,
                void* dqkv, float* deltas) {
  constexpr int kBytes = kFmaBackwardBytes<T, kSize, kRows>;
  const std::int64_t tiles = (shape.tokens + 16 * kRows - 1) / (16 * kRows);
  const unsigned blocks = attention_blocks(shape, tiles);
  const AttentionExtents extents(shape);
  const auto *qkv = static_cast<const T*>(saved.qkv), *o = static_cast<const T*>(saved.o),
             *gradient = static_cast<const T*>(dout);
  auto* queries = attention_fma_grad_queries<T, kSize, kRows>;
  auto* keys = attention_fma_grad_keys<T, kSize, kRows>;
  allow_shared_bytes(exec, queries, kBytes);
  allow_shared_bytes(exec, keys, kBytes);
  queries<<<blocks, kFmaThreads, kBytes, stream_of(exec)>>>(extents, static_cast<int>(tiles), qkv, o, saved.lse,
                                                            gradient, static_cast<T*>(dqkv), deltas);
  check_launch("attention_fma_grad_queries");
  keys<<<blocks, kFmaThreads, kBytes, stream_of(exec)>>>(extents, static_cast<int>(tiles), qkv, saved.lse, gradient,
                                                         deltas, static_cast<T*>(dqkv));
  check_launch("attention_fma_grad_keys");
}

}  // namespace

void attention_backward(const Exec& exec, const AttentionShape& shape, DType dtype, const AttentionSaved& saved,
                        const void* dout, void* dqkv, Workspace workspace) {
  require_workspace(workspace, attention_backward_workspace_bytes(shape, dtype, DeviceKind::cuda),
                    "attention_backward");
  if (shape.rows() * shape.heads == 0) return;
  auto* deltas = static_cast<float*>(workspace.data);  // (batch, heads, tokens)
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (shape.size <= 64) return launch_fma<T, 64, 4>(exec, shape, saved, dout, dqkv, deltas);
    launch_fma<T, 128, 1>(exec, shape, saved, dout, dqkv, deltas);
  });
}

}  // namespace bantam::kernels::cuda
