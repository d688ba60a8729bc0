// The masked input gradient of a pointwise convolution on the CPU: the GEMM in float32, then a pass that adds, masks
// and sums.
#include "bantam/kernels/pointwise/masked_gradient.h"

#include "bantam/kernels/common/cpu/column_sums.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"
#include "bantam/kernels/pointwise/masked_gradient_parts.h"

namespace bantam::kernels::cpu {
namespace {

/// dz = mask ⊙ (product + addend), rounded, and its sums; a row is whole bytes of the mask.
template <class T>
void add_mask_and_sum(const Exec& exec, const PointwiseShape& s, const float* product, const T* addend,
                      const std::uint8_t* mask, T* dz, float* partials, float* sums) {
  const std::int64_t parts = sum_parts(s.rows, s.in, DeviceKind::cpu);
  const auto step = [=](std::int64_t at, std::int64_t, std::int64_t, Float8* sum) {
    const Float8 slope = from_bits(mask[at / kLanes]) ? broadcast8(1.0f) : Float8{};
    store8(dz + at, (load8(product + at) + load8(addend + at)) * slope);  // NaN stays, as in masked_activation_grad
    sum[0] += load8(dz + at);
  };
  parallel_parts(parts, exec.threads, [&](std::int64_t part) {
    float* to = partials + part * s.in;
    std::fill(to, to + s.in, 0.0f);
    sum_columns<1>({part_begin(s.rows, parts, part), part_begin(s.rows, parts, part + 1)}, s.in, &to, step);
  });
  add_parts(partials, parts, s.in, sums, false, exec.threads);
}

}  // namespace

void masked_gradient(const Exec& exec, const PointwiseShape& s, DType dtype, const void* dy, const void* w,
                     const void* addend, const std::uint8_t* mask, void* dz, float* sums, Workspace workspace) {
  if (!masked_gradient_fits(s, dtype)) throw ShapeError("masked_gradient: a shape or a type that it does not support");
  require_workspace(workspace, masked_gradient_workspace_bytes(s, dtype, DeviceKind::cpu), "masked_gradient");
  const MaskedGradientScratch scratch(s, dtype, DeviceKind::cpu, workspace);
  matmul(exec, pointwise_grad_input_product(s), dtype, dy, w, {.data = scratch.product}, scratch.gemm);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    add_mask_and_sum(exec, s, scratch.product, static_cast<const T*>(addend), mask, static_cast<T*>(dz),
                     scratch.partials, sums);
  });
}

}  // namespace bantam::kernels::cpu
