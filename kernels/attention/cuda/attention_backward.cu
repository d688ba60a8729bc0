// Attention backward on CUDA: which kernels a shape gets.
#include "bantam/kernels/attention/cuda/attention_fma.cuh"
#include "bantam/kernels/attention/cuda/attention_mma_backward.cuh"
#include "bantam/kernels/attention/cuda/attention_plan.h"
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/common/workspace_layout.h"

namespace bantam::kernels::cuda {
namespace {

/// A call's operands.
template <class T>
struct Operands {
  Operands(const AttentionSaved& saved, const void* gradient, void* to)
      : qkv(static_cast<const T*>(saved.qkv)),
        o(static_cast<const T*>(saved.o)),
        lse(saved.lse),
        dout(static_cast<const T*>(gradient)),
        dqkv(static_cast<T*>(to)) {}
  const T *qkv, *o;
  const float* lse;
  const T* dout;
  T* dqkv;
};

template <class T, int kSize, int kRows>
void launch_fma(const Exec& exec, const AttentionShape& shape, const Operands<T>& of, float* deltas) {
  constexpr int kBytes = kFmaBackwardBytes<T, kSize, kRows>;
  const std::int64_t tiles = (shape.tokens + 16 * kRows - 1) / (16 * kRows);
  const unsigned blocks = attention_blocks(shape, tiles);
  const AttentionExtents extents(shape);
  auto* queries = attention_fma_grad_queries<T, kSize, kRows>;
  auto* keys = attention_fma_grad_keys<T, kSize, kRows>;
  allow_shared_bytes(exec, queries, kBytes);
  allow_shared_bytes(exec, keys, kBytes);
  queries<<<blocks, kFmaThreads, kBytes, stream_of(exec)>>>(extents, static_cast<int>(tiles), of.qkv, of.o, of.lse,
                                                            of.dout, of.dqkv, deltas);
  check_launch("attention_fma_grad_queries");
  keys<<<blocks, kFmaThreads, kBytes, stream_of(exec)>>>(extents, static_cast<int>(tiles), of.qkv, of.lse, of.dout,
                                                         deltas, of.dqkv);
  check_launch("attention_fma_grad_keys");
}

template <class T, int kSize>
void launch_mma(const Exec& exec, const AttentionShape& shape, const Operands<T>& of, float* deltas) {
  const AttentionExtents extents(shape);
  const bool wide = rows_are_wide<T>(shape, of.qkv, of.o, of.dout, of.dqkv);
  if constexpr (kSize <= 64) {
    const WholeHeadPlan plan(extents.tokens);
    if (extents.tokens <= kMostWholeHeadTokens &&
        plan.shared_bytes<kSize>() <= Libraries::of(exec).kernel_limits().block_shared_bytes()) {
      auto* kernel = attention_mma_whole_head<T, kSize>;
      allow_shared_bytes(exec, kernel, plan.shared_bytes<kSize>());
      kernel<<<attention_blocks(shape, 1), plan.threads(), plan.shared_bytes<kSize>(), stream_of(exec)>>>(
          extents, wide, of.qkv, of.o, of.lse, of.dout, of.dqkv);
      check_launch("attention_mma_whole_head");
      return;
    }
  }
  RingPlan plan = ring_plan(Libraries::of(exec).kernel_limits().block_shared_bytes(), shape.tokens, kGradientWarps, 16,
                            kGradientKeys<kSize>, 2,
                            [](int warps, int rows) { return grad_queries_shared_bytes<kSize>(warps, rows); });
  plan.wide = wide;
  auto* queries = attention_mma_grad_queries<T, kSize>;
  allow_shared_bytes(exec, queries, plan.bytes);
  queries<<<attention_blocks(shape, plan.tiles), 32 * plan.warps, plan.bytes, stream_of(exec)>>>(
      extents, plan, of.qkv, of.o, of.lse, of.dout, of.dqkv, deltas);
  check_launch("attention_mma_grad_queries");
  plan = ring_plan(Libraries::of(exec).kernel_limits().block_shared_bytes(), shape.tokens, kGradientWarps, 16,
                   kGradientQueries<kSize>, 2,
                   [](int warps, int rows) { return grad_keys_shared_bytes<kSize>(warps, rows); });
  plan.wide = wide;
  auto* keys = attention_mma_grad_keys<T, kSize>;
  allow_shared_bytes(exec, keys, plan.bytes);
  keys<<<attention_blocks(shape, plan.tiles), 32 * plan.warps, plan.bytes, stream_of(exec)>>>(
      extents, plan, of.qkv, of.lse, of.dout, deltas, of.dqkv);
  check_launch("attention_mma_grad_keys");
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
    const Operands<T> of(saved, dout, dqkv);
    if constexpr (!std::is_same_v<T, float>) {
      if (runs_mma<T>(Libraries::of(exec).code_architecture())) {
        return with_padded_size(shape.size,
                                [&](auto size) { launch_mma<T, decltype(size)::value>(exec, shape, of, deltas); });
      }
    }
    if constexpr (!std::is_same_v<T, __half>) {
      if (shape.size <= 64) return launch_fma<T, 64, 4>(exec, shape, of, deltas);
      launch_fma<T, 128, 1>(exec, shape, of, deltas);
    }
  });
}

}  // namespace bantam::kernels::cuda
