// Backward of a separable block: partial gradients of bands and runs of images by one kernel (tiles, or moments for few
// input channels), and their sums by another, or by the update.
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/separable/cuda/separable_backward.cuh"
#include "bantam/kernels/separable/separable_block.h"

namespace bantam::kernels::cuda {
namespace {

/// The weight gradients lie one after the other in a part.
void note_sums(const SeparableBlockShape& s, const float* partials, std::int64_t parts,
               const SeparableBlockGradients& to, PartialSums& partial) {
  const std::int64_t pointwise = s.pointwise_elements(), depthwise = s.depthwise_elements();
  const auto note = [&](const ParameterTarget& gradient, std::int64_t at, std::int64_t elements) {
    if (gradient.data == nullptr) return;
    partial.add({.from = partials + at,
                 .to = gradient.data,
                 .parts = static_cast<std::int32_t>(parts),
                 .stride = static_cast<std::int32_t>(separable_gradient_elements(s)),
                 .elements = static_cast<std::int32_t>(elements),
                 .accumulate = gradient.accumulate});
  };
  note(to.pointwise, 0, pointwise);
  note(to.depthwise, pointwise, depthwise);
  note(to.bias, pointwise + depthwise, s.out_channels);
}

void require_aligned(const void* address, std::uintptr_t to, const char* name) {
  if (reinterpret_cast<std::uintptr_t>(address) % to == 0) return;
  throw Error(std::string("separable_block_backward: ") + name + " must be aligned to " + std::to_string(to) +
              " bytes");
}

}  // namespace

void separable_block_backward(const Exec& exec, const SeparableBlockShape& s, DType dtype,
                              const SeparableBlockInputs& in, const SeparableBlockGradients& to, Workspace workspace) {
  require_workspace(workspace, separable_backward_workspace_bytes(s, dtype), "separable_block_backward");
  for (const void* address : {in.x, in.dy, static_cast<const void*>(to.dx)})
    require_aligned(address, 16, "x, dy and dx");
  require_aligned(in.weights.depthwise, 8, "w_depthwise");
  require_aligned(in.codes, 4, "codes");
  if (s.batch >> 31 != 0) throw ShapeError("separable_block_backward: the batch is too large for one call on CUDA");
  const SeparableOperands operands{
      in.x, in.weights.depthwise, in.weights.pointwise, in.dy, in.codes, to.dx, static_cast<float*>(workspace.data)};
  std::int64_t parts = 0;
  if (s.batch > 0 && separable_uses_moments(s)) {
    parts = separable_moments(exec, s, dtype, operands);
    if (to.dx != nullptr) separable_few_channels_grad_input(exec, s, dtype, operands);
  } else if (s.batch > 0) {
    parts = separable_tile_backward(exec, s, dtype, operands);
  }
  if (to.partial_sums != nullptr) return note_sums(s, operands.partials, parts, to, *to.partial_sums);
  PartialSums now;
  note_sums(s, operands.partials, parts, to, now);
  add_up_parts(exec, now);
}

}  // namespace bantam::kernels::cuda
