// Work of norms: what needs a sum over all rows, or over the positions of a sample, first reads its operands twice.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/norm/batch_norm.h"
#include "bantam/kernels/norm/batch_norm_add.h"
#include "bantam/kernels/norm/group_norm.h"
#include "bantam/kernels/norm/norm_work.h"
#include "bantam/kernels/norm/sync_norm.h"

namespace bantam::kernels::work {
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

std::int64_t group_norm_bytes(const GroupNormShape& s, DType dtype, int tensors, const BatchNormAffine& affine,
                              const float* mean, const float* inv_std) {
  return tensors * bytes_of(s.elements(), dtype) + vector_bytes(s.channels, affine.scale, affine.shift) +
         vector_bytes(s.samples * s.groups, mean, inv_std);
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

void pack_moments(const Exec& exec, std::int64_t channels, std::int64_t, const float*, const float*, double*) {
  note(exec, "pack_moments", {.bytes = 2 * 4 * channels + 8 * norm_message_elements(channels)});
}

void unpack_moments(const Exec& exec, std::int64_t channels, const double*, const StatisticsOutput& statistics,
                    float*) {
  note(exec, "unpack_moments",
       {.bytes = 8 * norm_message_elements(channels) + statistics_bytes(statistics, channels) + 4});
}

/// The sums become means; then x, dy and dx.
void sync_norm_input_gradient(const Exec& exec, const BatchNormShape& s, DType dtype, const NormOperand& norm,
                              const void*, const float*, float*, void*) {
  note(exec, "sync_norm_input_gradient",
       {.bytes = 3 * tensor_bytes(s, dtype) + norm_bytes(norm, s.channels) + 4 * 4 * s.channels + 4, .passes = 2});
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

/// A row of memory is read once. Of several positions x is read for the statistics, which end in a kernel of their own;
/// then x and y.
void group_norm_forward(const Exec& exec, const GroupNormShape& s, DType dtype, const void*,
                        const BatchNormAffine& affine, float, void* y, float* mean, float* inv_std, Workspace) {
  const bool row = s.positions == 1, written = y != nullptr;
  const int tensors = written ? (row ? 2 : 3) : 1, passes = row ? 1 : (written ? 3 : 2);
  note(exec, "group_norm_forward",
       {.bytes = group_norm_bytes(s, dtype, tensors, written ? affine : BatchNormAffine{}, mean, inv_std),
        .passes = passes});
}

void group_norm_apply(const Exec& exec, const GroupNormShape& s, DType dtype, const NormOperand& norm, void*) {
  note(exec, "group_norm_apply", {.bytes = group_norm_bytes(s, dtype, 2, norm.affine, norm.mean, norm.inv_std)});
}

/// Rows of memory: x, dy and dx. Several positions: x and dy for the sums; then x, dy and dx. An addend is read with
/// dx. The sums of samples end in a kernel of their own, and so do those of groups.
void group_norm_backward(const Exec& exec, const GroupNormShape& s, DType dtype, const NormOperand& norm, const void*,
                         const void* addend, const NormGradients& to, Workspace) {
  const bool row = s.positions == 1, written = to.dx != nullptr;
  const int tensors = 2 + (written ? (row ? 1 : 3) + (addend != nullptr ? 1 : 0) : 0),
            more = to.dscale != nullptr || to.dshift != nullptr ? 1 : 0;
  BatchNormShape channels{.rows = s.samples * s.positions, .channels = s.channels};
  note(exec, "group_norm_backward",
       {.bytes =
            group_norm_bytes(s, dtype, tensors, norm.affine, norm.mean, norm.inv_std) + gradient_bytes(channels, to),
        .passes = more + (row || !written ? 1 : 3)});
}

}  // namespace bantam::kernels::work
