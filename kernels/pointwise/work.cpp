// Work of pointwise convolutions that apply a norm as they read, or a mask as they write.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/norm/norm_work.h"
#include "bantam/kernels/pointwise/masked_gradient.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"

namespace bantam::kernels::work {
namespace {

std::int64_t product_flops(const PointwiseShape& s) { return 2 * s.rows * s.in * s.out; }

}  // namespace

void norm_input_gradient(const Exec& exec, const BatchNormShape& s, DType dtype, const NormInputGradient& from, void*,
                         Workspace) {
  note(exec, "norm_input_gradient",
       {.bytes = 3 * bytes_of(s.rows * s.channels, dtype) + norm_bytes(from.y, s.channels) +
                 unless_null(from.totals, 8 * s.channels)});
}

void pointwise_norm_forward(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x, const void*,
                            void*, const StatisticsOutput* statistics, Workspace) {
  const bool wanted = statistics != nullptr && statistics->wanted();
  note(exec, "pointwise_norm_forward",
       {.kind = KernelKind::stencil,
        .bytes = bytes_of(s.rows * (s.in + s.out) + s.in * s.out, dtype) + norm_bytes(x, s.in) +
                 (wanted ? statistics_bytes(*statistics, s.out) : 0),
        .flops = product_flops(s),
        .matrix_flops = product_flops(s),
        .passes = wanted ? 2 : 1});
}

/// One pass over dy where the kernels can make both gradients in one, else one for each.
void pointwise_norm_backward(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x, const void*,
                             const NormInputGradient& dy, const PointwiseGradients& to, Workspace) {
  const int products = (to.da != nullptr ? 1 : 0) + (to.dw != nullptr ? 1 : 0);
  const int reads = pointwise_norm_supports_gradient(s, dtype) ? 1 : products;
  const std::int64_t gradient = s.rows * s.out * (dy.totals != nullptr ? 2 : 1);
  note(
      exec, "pointwise_norm_backward",
      {.kind = KernelKind::stencil,
       .bytes = bytes_of(reads * gradient + s.rows * s.in + s.in * s.out, dtype) + norm_bytes(x, s.in) +
                norm_bytes(dy.y, s.out) + unless_null(dy.totals, 8 * s.out) +
                unless_null(to.da, bytes_of(s.rows * s.in, dtype)) + gradient_bytes(to.dw, to.accumulate, s.in * s.out),
       .flops = products * product_flops(s),
       .matrix_flops = products * product_flops(s),
       .passes = 1 + reads});
}

/// The second pass adds the parts of the sums.
void masked_gradient(const Exec& exec, const PointwiseShape& s, DType dtype, const void*, const void*, const void*,
                     const std::uint8_t*, void*, float*, Workspace) {
  note(exec, "masked_gradient",
       {.kind = KernelKind::product,
        .bytes = bytes_of(s.rows * (s.out + 2 * s.in) + s.in * s.out, dtype) + s.rows * s.in / 8 + 4 * s.in,
        .flops = product_flops(s),
        .matrix_flops = product_flops(s),
        .passes = 2});
}

}  // namespace bantam::kernels::work
