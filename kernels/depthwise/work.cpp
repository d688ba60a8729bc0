// Work of depthwise convolutions, alone and between two norms.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/depthwise/depthwise_conv2d.h"
#include "bantam/kernels/depthwise/depthwise_inference.h"
#include "bantam/kernels/depthwise/norm_depthwise.h"
#include "bantam/kernels/elementwise/epilogue_work.h"
#include "bantam/kernels/norm/norm_work.h"

namespace bantam::kernels::work {
namespace {

std::int64_t taps_flops(const DepthwiseConv2dShape& s) { return 2 * s.y_elements() * s.kernel_h * s.kernel_w; }

KernelWork taps(const DepthwiseConv2dShape& s, std::int64_t bytes) {
  return {.kind = KernelKind::stencil, .bytes = bytes, .flops = taps_flops(s)};
}

std::int64_t gradient_bytes(const VectorGradients& gradients, std::int64_t channels) {
  return vector_bytes(channels, gradients.dscale, gradients.dshift) * (gradients.accumulate ? 2 : 1);
}

}  // namespace

void depthwise_conv2d_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void*, const void*,
                              void*) {
  note(exec, "depthwise_conv2d_forward", taps(s, bytes_of(s.x_elements() + s.w_elements() + s.y_elements(), dtype)));
}

void depthwise_conv2d_inference(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void*, const void*,
                                const Epilogue& epilogue, void*) {
  const std::int64_t more = epilogue_elements(epilogue, s.y_elements(), s.out_channels());
  note(exec, "depthwise_conv2d_inference",
       taps(s, bytes_of(s.x_elements() + s.w_elements() + s.y_elements() + more, dtype)));
}

void depthwise_conv2d_grad_input(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void*, const void*,
                                 void*) {
  note(exec, "depthwise_conv2d_grad_input", taps(s, bytes_of(s.y_elements() + s.w_elements() + s.x_elements(), dtype)));
}

void depthwise_conv2d_grad_weight(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void*,
                                  const void*, float* dw, bool accumulate, Workspace) {
  KernelWork work =
      taps(s, bytes_of(s.x_elements() + s.y_elements(), dtype) + work::gradient_bytes(dw, accumulate, s.w_elements()));
  work.passes = 2;  // partial sums, and their sum
  note(exec, "depthwise_conv2d_grad_weight", work);
}

void norm_depthwise_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const NormOperand& x,
                            const void*, void*, const StatisticsOutput& statistics, Workspace) {
  KernelWork work = taps(s, bytes_of(s.x_elements() + s.w_elements() + s.y_elements(), dtype) +
                                norm_bytes(x, s.channels) + statistics_bytes(statistics, s.channels));
  work.passes = 2;
  note(exec, "norm_depthwise_forward", work);
}

/// The second norm's sums need all of y and dy before a gradient can begin, and the first norm's all of dz before dx
/// can, unless the op that reads dz computes dx.
void norm_depthwise_backward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype,
                             const NormDepthwiseInputs& inputs, const NormDepthwiseGradients& gradients, Workspace) {
  const std::int64_t x = s.x_elements(), y = s.y_elements();
  const std::int64_t sums = 2 * y, gradient = x + 2 * y + x, input = gradients.totals != nullptr ? 0 : 3 * x;
  const std::int64_t products = 1 + (gradients.dw != nullptr ? 1 : 0);
  note(exec, "norm_depthwise_backward",
       {.kind = KernelKind::fused,
        .bytes = bytes_of(sums + gradient + input + s.w_elements(), dtype) + norm_bytes(inputs.x, s.channels) +
                 norm_bytes(inputs.y, s.channels) +
                 work::gradient_bytes(gradients.dw, gradients.accumulate, s.w_elements()) +
                 gradient_bytes(gradients.before, s.channels) + gradient_bytes(gradients.after, s.channels) +
                 unless_null(gradients.totals, 8 * s.channels),
        .flops = products * taps_flops(s),
        .passes = gradients.totals != nullptr ? 4 : 5});
}

}  // namespace bantam::kernels::work
