// Work of separable blocks: nothing between the convolutions is written.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/separable/separable_block.h"

namespace bantam::kernels::work {
namespace {

std::int64_t positions(const SeparableBlockShape& s) { return s.batch * s.conv_h() * s.conv_w(); }
std::int64_t depthwise_flops(const SeparableBlockShape& s) { return 2 * positions(s) * s.depthwise_elements(); }
std::int64_t pointwise_flops(const SeparableBlockShape& s) { return 2 * positions(s) * s.pointwise_elements(); }

}  // namespace

void separable_block_forward(const Exec& exec, const SeparableBlockShape& s, DType dtype, const void*,
                             const SeparableBlockWeights& weights, void*, std::uint8_t* codes, Workspace) {
  const std::int64_t parameters =
      s.depthwise_elements() + s.pointwise_elements() + (weights.bias != nullptr ? s.out_channels : 0);
  note(exec, "separable_block_forward",
       {.kind = KernelKind::fused,
        .bytes = bytes_of(s.x_elements() + parameters + s.y_elements(), dtype) +
                 unless_null(codes, separable_block_code_bytes(s)),
        .flops = depthwise_flops(s) + pointwise_flops(s)});
}

/// The depthwise result is computed again; then d_pointwise and d_mid, d_depthwise and dx.
void separable_block_backward(const Exec& exec, const SeparableBlockShape& s, DType dtype,
                              const SeparableBlockInputs& inputs, const SeparableBlockGradients& to, Workspace) {
  const std::int64_t weights = s.depthwise_elements() + s.pointwise_elements();
  note(exec, "separable_block_backward",
       {.kind = KernelKind::fused,
        .bytes = bytes_of(s.x_elements() + weights + s.y_elements(), dtype) +
                 unless_null(inputs.codes, separable_block_code_bytes(s)) +
                 unless_null(to.dx, bytes_of(s.x_elements(), dtype)) +
                 gradient_bytes(to.depthwise, s.depthwise_elements()) +
                 gradient_bytes(to.pointwise, s.pointwise_elements()) + gradient_bytes(to.bias, s.out_channels),
        .flops = depthwise_flops(s) * (to.dx != nullptr ? 3 : 2) + 2 * pointwise_flops(s),
        .passes = to.partial_sums != nullptr ? 1 : 2});
}

}  // namespace bantam::kernels::work
