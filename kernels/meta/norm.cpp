// Work of batch norms: what needs a sum over all rows first reads its operands twice.
#include "bantam/kernels/contracts/elementwise/masked_activation.h"
#include "bantam/kernels/contracts/norm/batch_norm.h"
#include "bantam/kernels/contracts/norm/batch_norm_add.h"
#include "bantam/kernels/meta/work.h"

namespace bantam::kernels::meta {
namespace {

std::int64_t tensor_bytes(const BatchNormShape& s, DType dtype) { return bytes_of(s.rows * s.channels, dtype); }
std::int64_t vectors(const BatchNormShape& s, const BatchNormAffine& affine) {
  return vector_bytes(s.channels, affine.scale, affine.shift);
}
std::int64_t mask_bytes(const BatchNormShape& s) {
  return static_cast<std::int64_t>(activation_mask_bytes(s.rows * s.channels));
}
std::int64_t gradient_bytes(const BatchNormShape& s, const NormGradients& to) {
  return vector_bytes(s.channels, to.dscale, to.dshift) * (to.accumulate ? 2 : 1);
}

}  // namespace

/// x for its statistics; then x and y. Sums over rows end in a kernel of their own.
void batch_norm_forward_training(const Exec& exec, const BatchNormShape& s, DType dtype, const void*,
                                 const BatchNormAffine& affine, void* y, const StatisticsOutput& statistics,
                                 Workspace) {
  const bool written = y != nullptr;
  note(exec, "batch_norm_forward_training",
       {.bytes = (written ? 3 : 1) * tensor_bytes(s, dtype) + statistics_bytes(statistics, s.channels) +
                 (written ? vectors(s, affine) : 0),
        .passes = written ? 3 : 2});
}

void batch_norm_apply(const Exec& exec, const BatchNormShape& s, DType dtype, const void*,
                      const BatchNormAffine& affine, const float* mean, const float* inv_std, void*) {
  note(exec, "batch_norm_apply",
       {.bytes = 2 * tensor_bytes(s, dtype) + vectors(s, affine) + vector_bytes(s.channels, mean, inv_std)});
}

/// x and dy for the two sums; then x, dy and dx.
void batch_norm_backward_training(const Exec& exec, const BatchNormShape& s, DType dtype, const NormOperand& norm,
                                  const void*, const NormGradients& to, Workspace) {
  const bool written = to.dx != nullptr;
  note(exec, "batch_norm_backward_training",
       {.bytes = (written ? 5 : 2) * tensor_bytes(s, dtype) + norm_bytes(norm, s.channels) + gradient_bytes(s, to),
        .passes = written ? 3 : 2});
}

void batch_norm_forward_inference(const Exec& exec, const BatchNormShape& s, DType dtype, const void*,
                                  const BatchNormAffine& affine, const RunningStatistics& running, void*) {
  note(exec, "batch_norm_forward_inference",
       {.bytes = 2 * tensor_bytes(s, dtype) + vectors(s, affine) +
                 vector_bytes(s.channels, running.mean, running.variance)});
}

/// dy and dx; x where it is read; for the two sums x and dy once more.
void batch_norm_backward_inference(const Exec& exec, const BatchNormShape& s, DType dtype, const void* x,
                                   const BatchNormAffine& affine, const RunningStatistics& running, const void*,
                                   const NormGradients& to, Workspace) {
  const bool sums = to.dscale != nullptr || to.dshift != nullptr;
  const int tensors = (sums ? 2 : 0) + (to.dx != nullptr ? 2 + (x != nullptr ? 1 : 0) : 0);
  note(exec, "batch_norm_backward_inference",
       {.bytes = tensors * tensor_bytes(s, dtype) + vectors(s, affine) +
                 vector_bytes(s.channels, running.mean, running.variance) + gradient_bytes(s, to),
        .passes = (sums ? 2 : 0) + (to.dx != nullptr ? 1 : 0)});
}

void batch_norm_add(const Exec& exec, ActivationFunction, const BatchNormShape& s, DType dtype, const NormOperand& a,
                    const NormOperand& b, void*, std::uint8_t* mask) {
  note(exec, "batch_norm_add",
       {.bytes = 3 * tensor_bytes(s, dtype) + norm_bytes(a, s.channels) + norm_bytes(b, s.channels) +
                 unless_null(mask, mask_bytes(s))});
}

/// The operands and x, for dz and the two sums; then dz, x and dx.
void batch_norm_add_grad(const Exec& exec, const BatchNormShape& s, DType dtype, const SumGradient& from,
                         const NormOperand& norm, void*, const NormGradients& to, Workspace) {
  const bool written = to.dx != nullptr;
  const std::int64_t tensors = 3 + (from.other != nullptr ? 1 : 0) + (written ? 3 : 0);
  note(exec, "batch_norm_add_grad",
       {.bytes = tensors * tensor_bytes(s, dtype) + unless_null(from.mask, mask_bytes(s)) +
                 norm_bytes(norm, s.channels) + gradient_bytes(s, to),
        .passes = written ? 3 : 2});
}

}  // namespace bantam::kernels::meta
