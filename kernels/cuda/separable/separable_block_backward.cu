// Backward of a separable block: partial gradients of bands and runs of images by one kernel (tiles, or moments for few
// input channels), and their sums by another, or by whom they are left to.
#include "bantam/kernels/contracts/separable/separable_block.h"
#include "bantam/kernels/cuda/separable/separable_backward.cuh"
#include "bantam/kernels/tiling/workspace_layout.h"

namespace bantam::kernels::cuda {
namespace {

/// The weight gradients, which lie one after the other in a part; null where nobody wants them.
struct WeightGradients {
  float *depthwise, *pointwise, *bias;
  std::array<bool, 3> accumulate;  // in this order
};

void note_sums(const SeparableBlockShape& s, const float* partials, std::int64_t parts, const WeightGradients& to,
               PendingSums& pending) {
  const std::int64_t pointwise = s.pointwise_elements(), depthwise = s.depthwise_elements();
  const auto note = [&](float* gradient, std::int64_t at, std::int64_t elements, bool accumulate) {
    if (gradient == nullptr) return;
    pending.add({.from = partials + at,
                 .to = gradient,
                 .parts = static_cast<std::int32_t>(parts),
                 .stride = static_cast<std::int32_t>(separable_gradient_elements(s)),
                 .elements = static_cast<std::int32_t>(elements),
                 .accumulate = accumulate});
  };
  note(to.pointwise, 0, pointwise, to.accumulate[1]);
  note(to.depthwise, pointwise, depthwise, to.accumulate[0]);
  note(to.bias, pointwise + depthwise, s.out_channels, to.accumulate[2]);
}

void require_aligned(const void* address, std::uintptr_t to, const char* name) {
  if (reinterpret_cast<std::uintptr_t>(address) % to == 0) return;
  throw Error(std::string("separable_block_backward: ") + name + " must be aligned to " + std::to_string(to) +
              " bytes");
}

}  // namespace

void separable_block_backward(const Exec& exec, const SeparableBlockShape& s, DType dtype, const void* x,
                              const void* w_depthwise, const void* w_pointwise, const void* dy,
                              const std::uint8_t* codes, void* dx, float* d_depthwise, float* d_pointwise,
                              float* d_bias, std::array<bool, 3> accumulate, PendingSums* pending,
                              Workspace workspace) {
  require_workspace(workspace, separable_backward_workspace_bytes(s, dtype), "separable_block_backward");
  for (const void* address : {x, dy, static_cast<const void*>(dx)}) require_aligned(address, 16, "x, dy and dx");
  require_aligned(w_depthwise, 8, "w_depthwise");
  require_aligned(codes, 4, "codes");
  if (s.batch >> 31 != 0) throw ShapeError("separable_block_backward: the batch is too large for one call on CUDA");
  const SeparableOperands operands{x, w_depthwise, w_pointwise, dy, codes, dx, static_cast<float*>(workspace.data)};
  std::int64_t parts = 0;
  if (s.batch > 0 && separable_uses_moments(s)) {
    parts = separable_moments(exec, s, dtype, operands);
    if (dx != nullptr) separable_few_channels_grad_input(exec, s, dtype, operands);
  } else if (s.batch > 0) {
    parts = separable_tile_backward(exec, s, dtype, operands);
  }
  const WeightGradients to{d_depthwise, d_pointwise, d_bias, accumulate};
  if (pending != nullptr) return note_sums(s, operands.partials, parts, to, *pending);
  PendingSums now;
  note_sums(s, operands.partials, parts, to, now);
  add_up_parts(exec, now);
}

}  // namespace bantam::kernels::cuda
