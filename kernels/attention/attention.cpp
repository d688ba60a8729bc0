// Attention: its scratch memory, and the work of its calls.
#include "bantam/kernels/attention/attention.h"

#include <fmt/core.h>

#include "bantam/kernels/attention/attention_parts.h"
#include "bantam/kernels/common/work.h"

namespace bantam::kernels {

void check_attention_shape(const AttentionShape& s) {
  if (s.batch < 0 || s.tokens < 0 || s.heads < 0)
    throw ShapeError(
        fmt::format("attention: a batch of {}, {} tokens and {} heads; none is negative", s.batch, s.tokens, s.heads));
  if (s.size < 8 || s.size > kMostHeadSize || s.size % 4 != 0)
    throw ShapeError(
        fmt::format("attention: a head has {} channels; expected a multiple of 4 from 8 to {}", s.size, kMostHeadSize));
}

std::size_t attention_workspace_bytes(const AttentionShape& shape, DType, DeviceKind) {
  check_attention_shape(shape);
  return 0;
}

/// CUDA: δ of every query. CPU, beyond one tile of scores: half types' sums of dq, of a head a part.
std::size_t attention_backward_workspace_bytes(const AttentionShape& s, DType dtype, DeviceKind target) {
  check_attention_shape(s);
  const bool summed = is_half(dtype) && s.tokens > kWholeHeadTokens;
  const std::int64_t rows = target == DeviceKind::cuda ? s.batch * s.heads
                            : summed                   ? attention_sum_parts(s) * s.size
                                                       : 0;
  return static_cast<std::size_t>(rows * s.tokens) * sizeof(float);
}

std::int64_t attention_flops(const AttentionShape& s) { return 4 * s.batch * s.tokens * s.tokens * s.channels(); }

namespace work {
namespace {

/// The work of a call on so many `tensors` of (batch, tokens, heads, size) each, with so many products whose sums are
/// over a head's channels, and over tokens.
KernelWork attention_work(const AttentionShape& s, DType dtype, int tensors, bool lse, int channel_sums,
                          int token_sums) {
  const std::int64_t matrix = 2 * s.batch * s.heads * s.tokens;
  return {.kind = KernelKind::attention,
          .bytes = tensors * bytes_of(s.rows() * s.channels(), dtype) + (lse ? 4 * s.rows() * s.heads : 0),
          .flops = (channel_sums + token_sums) * attention_flops(s) / 2,
          .matrix_flops =
              matrix * (channel_sums * s.tokens * matrix_depth(s.size) + token_sums * s.size * matrix_depth(s.tokens))};
}

}  // namespace

void attention_forward(const Exec& exec, const AttentionShape& s, DType dtype, const void*, void*, float* lse,
                       Workspace) {
  note(exec, "attention_forward", attention_work(s, dtype, 4, lse != nullptr, 1, 1));
}

/// Reads qkv, o and do, and writes dqkv. With more tokens than a tile of scores has, CUDA computes dq in a kernel of
/// its own.
void attention_backward(const Exec& exec, const AttentionShape& s, DType dtype, const AttentionSaved&, const void*,
                        void*, Workspace) {
  KernelWork work = attention_work(s, dtype, 8, true, 2, 3);
  work.passes = s.tokens > kWholeHeadTokens ? 2 : 1;
  note(exec, "attention_backward", work);
}

}  // namespace work
}  // namespace bantam::kernels
