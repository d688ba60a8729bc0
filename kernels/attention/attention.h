// Scaled dot-product attention of a sequence with itself: softmax(scale·q·kᵀ)·v for each sample and head, without mask
// and without dropout. Source: Vaswani et al. 2017, "Attention is all you need", section 3.2; that the scores of a row
// need not be kept, for backward has their logarithmic sum: Dao et al. 2022, "FlashAttention", sections 3.1 and B.2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// Queries, keys and values lie side by side: qkv (batch, tokens, 3, heads, size), as a dense layer of 3·heads·size
/// units writes them. The output is (batch, tokens, heads, size).
struct AttentionShape {
  std::int64_t batch = 0, tokens = 0, heads = 0;
  std::int64_t size = 0;  ///< of a head: a multiple of 4 from 8 to 128
  float scale = 1;        ///< of the products q·k, not 0; 1/√size most often

  std::int64_t channels() const { return heads * size; }
  std::int64_t rows() const { return batch * tokens; }
};

/// Throws ShapeError, naming the extent, for negative extents and for a size of a head that kernels do not have.
void check_attention_shape(const AttentionShape& shape);

/// Scratch bytes of a forward and of a backward call; shape, type and target only.
std::size_t attention_workspace_bytes(const AttentionShape& shape, DType dtype, DeviceKind target);
std::size_t attention_backward_workspace_bytes(const AttentionShape& shape, DType dtype, DeviceKind target);
/// Operations of forward, two products: 4·batch·heads·tokens²·size. Backward has five such products.
std::int64_t attention_flops(const AttentionShape& shape);

/// o = P·v with P = softmax over keys of scale·q·kᵀ. lse (batch, heads, tokens), float32, gets the natural logarithm of
/// the row's sum of exp(scale·q·k); it may be null, where nothing is differentiated. qkv and o are `dtype` (float32,
/// float16, bfloat16); scores, sums and exponentials are float32, and P is rounded to `dtype` before its product with
/// v. o does not alias qkv. A sample and head has the same bits in batches of any size. Deterministic.
using AttentionForward = void(const Exec&, const AttentionShape&, DType dtype, const void* qkv, void* o, float* lse,
                              Workspace);

/// Tensors that forward read and wrote.
struct AttentionSaved {
  const void* qkv = nullptr;
  const void* o = nullptr;
  const float* lse = nullptr;
};

/// The gradient of qkv from that of o. With P = exp(scale·q·kᵀ - lse), which is computed again, and δ = Σ over size of
/// do·o of a query:
///   dv = Pᵀ·do,   dS = P∘(do·vᵀ - δ),   dq = scale·dS·k,   dk = scale·dSᵀ·q.
/// dqkv is laid out as qkv and aliases no input. Sums are float32; P and dS are rounded to `dtype` before their
/// products. Without atomic additions: a sample and head has the same bits in batches of any size. Deterministic.
using AttentionBackward = void(const Exec&, const AttentionShape&, DType dtype, const AttentionSaved& saved,
                               const void* dout, void* dqkv, Workspace);
BANTAM_DECLARE_KERNEL(AttentionForward, attention_forward);
BANTAM_DECLARE_KERNEL(AttentionBackward, attention_backward);

}  // namespace bantam::kernels
