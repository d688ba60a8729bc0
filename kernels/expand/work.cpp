// Work of expanding convolutions by algebra.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/expand/expand.h"
#include "bantam/kernels/norm/norm_work.h"

namespace bantam::kernels::work {
namespace {

std::int64_t product_flops(std::int64_t m, std::int64_t n, std::int64_t k) { return 2 * m * n * k; }

}  // namespace

/// One pass; with moments ã is read once more by its Gram matrix's GEMM.
void expand_centre(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& x, void*,
                   const ExpandMoments& moments, Workspace) {
  const bool wanted = moments.mean != nullptr;
  const std::int64_t flops = wanted ? product_flops(s.in, s.in, s.rows) : 0;
  note(exec, "expand_centre",
       {.bytes = (wanted ? 3 : 2) * bytes_of(s.rows * s.in, dtype) + norm_bytes(x, s.in) +
                 (wanted ? 4 * (s.in + s.in * s.in) : 0),
        .flops = flops,
        .matrix_flops = flops,
        .passes = wanted ? 4 : 1});
}

void expand_statistics(const Exec& exec, const ExpandShape& s, DType dtype, const void*, const ExpandMoments&,
                       const BatchNormAffine& before, const StatisticsOutput& statistics, float*, Workspace) {
  note(exec, "expand_statistics",
       {.bytes = bytes_of(s.out * s.in, dtype) + 4 * (s.in * s.in + 5 * s.out * s.in) +
                 vector_bytes(s.in, before.scale, before.shift) + statistics_bytes(statistics, s.out),
        .flops = product_flops(s.out, s.in, s.in),
        .passes = 3});
}

void expand_sum(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& product, const void*,
                const NormOperand& residual, void*, std::uint8_t* mask, Workspace) {
  note(exec, "expand_sum",
       {.kind = KernelKind::product,
        .bytes = bytes_of(s.rows * (s.in + 2 * s.out) + s.in * s.out, dtype) + norm_bytes(product, s.out) +
                 norm_bytes(residual, s.out) +
                 unless_null(mask, static_cast<std::int64_t>(activation_mask_bytes(s.rows * s.out))),
        .flops = product_flops(s.rows, s.out, s.in),
        .matrix_flops = product_flops(s.rows, s.out, s.in)});
}

void sum_gradient_totals(const Exec& exec, const BatchNormShape& s, DType dtype, const SumGradient& gradient, void*,
                         float*, Workspace) {
  const std::int64_t tensors = gradient.other != nullptr ? 3 : 2;
  note(exec, "sum_gradient_totals",
       {.bytes = tensors * bytes_of(s.rows * s.channels, dtype) + 4 * s.channels +
                 unless_null(gradient.mask, static_cast<std::int64_t>(activation_mask_bytes(s.rows * s.channels))),
        .passes = 2});
}

/// dz and ã for P, then both and x for the input gradient; between them matrices of W's size.
void expand_backward(const Exec& exec, const ExpandShape& s, DType dtype, const ExpandInputs& in,
                     const ExpandGradients& to, Workspace) {
  const std::int64_t flops = product_flops(s.rows, s.out, s.in) + product_flops(s.rows, s.in, s.in + s.out);
  note(exec, "expand_backward",
       {.kind = KernelKind::fused,
        .bytes = bytes_of(2 * s.rows * (s.in + s.out) + 2 * s.rows * s.in + s.in * s.out, dtype) +
                 norm_bytes(in.x, s.in) + norm_bytes(in.product, s.out) + 40 * s.out * s.in +
                 gradient_bytes(to.dw, to.accumulate_w, s.in * s.out) +
                 vector_bytes(s.out, to.dscale, to.dshift) * (to.accumulate_after ? 2 : 1) +
                 vector_bytes(s.in, to.dscale_before, to.dshift_before) * (to.accumulate_before ? 2 : 1),
        .flops = flops + product_flops(s.in, s.in, s.out),
        .matrix_flops = flops,
        .passes = 8});
}

}  // namespace bantam::kernels::work
