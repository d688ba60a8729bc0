// Attention forward on CUDA: which kernel a shape gets.
#include "bantam/kernels/attention/cuda/attention_fma.cuh"
#include "bantam/kernels/attention/cuda/attention_mma_forward.cuh"
#include "bantam/kernels/attention/cuda/attention_plan.h"
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/common/workspace_layout.h"

namespace bantam::kernels::cuda {
namespace {

template <class T, int kSize, int kRows>
void launch_fma(const Exec& exec, const AttentionShape& shape, const void* qkv, void* o, float* lse) {
  constexpr int kBytes = kFmaForwardBytes<T, kSize, kRows>;
  const std::int64_t tiles = (shape.tokens + 16 * kRows - 1) / (16 * kRows);
  const unsigned blocks = attention_blocks(shape, tiles);
  auto* kernel = attention_fma_forward<T, kSize, kRows>;
  allow_shared_bytes(exec, kernel, kBytes);
  kernel<<<blocks, kFmaThreads, kBytes, stream_of(exec)>>>(AttentionExtents(shape), static_cast<int>(tiles),
                                                           static_cast<const T*>(qkv), static_cast<T*>(o), lse);
  check_launch("attention_fma_forward");
}

template <class T, int kSize, bool kWhole>
void launch_mma(const Exec& exec, const AttentionShape& shape, const void* qkv, void* o, float* lse) {
  using Block = ForwardBlock<kSize, kWhole>;
  RingPlan plan = ring_plan(Libraries::of(exec).kernel_limits().block_shared_bytes(), shape.tokens, Block::kWarps,
                            16 * Block::kTiles, kChunkKeys<kSize>, Block::kStages,
                            [](int warps, int rows) { return forward_shared_bytes<kSize, kWhole>(warps, rows); });
  plan.wide = rows_are_wide<T>(shape, qkv, o);
  auto* kernel = attention_mma_forward<T, kSize, kWhole>;
  allow_shared_bytes(exec, kernel, plan.bytes);
  kernel<<<attention_blocks(shape, plan.tiles), 32 * plan.warps, plan.bytes, stream_of(exec)>>>(
      AttentionExtents(shape), plan, static_cast<const T*>(qkv), static_cast<T*>(o), lse);
  check_launch("attention_mma_forward");
}

}  // namespace

void attention_forward(const Exec& exec, const AttentionShape& shape, DType dtype, const void* qkv, void* o, float* lse,
                       Workspace workspace) {
  require_workspace(workspace, attention_workspace_bytes(shape, dtype, DeviceKind::cuda), "attention_forward");
  if (shape.rows() * shape.heads == 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, float>) {
      if (runs_mma<T>(Libraries::of(exec).code_architecture())) {
        return with_padded_size(shape.size, [&](auto size) {
          constexpr int kSize = decltype(size)::value;
          if constexpr (kSize <= 64) {
            if (shape.tokens <= kMostWholeHeadTokens) return launch_mma<T, kSize, true>(exec, shape, qkv, o, lse);
          }
          launch_mma<T, kSize, false>(exec, shape, qkv, o, lse);
        });
      }
    }
    if constexpr (!std::is_same_v<T, __half>) {
      if (shape.size <= 64) return launch_fma<T, 64, 4>(exec, shape, qkv, o, lse);
      launch_fma<T, 128, 2>(exec, shape, qkv, o, lse);
    }
  });
}

}  // namespace bantam::kernels::cuda
