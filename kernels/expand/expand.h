// An expanding 1x1 convolution between two batch norms with the residual sum after it, by linear algebra: the
// convolution's output c3 = a·wᵀ is linear in a, a half or a quarter as wide, so the covariance of a determines the
// batch statistics of c3 before c3 exists. One GEMM then writes relu(norm(c3) + residual), and c3 is never stored;
// backward, P = dzᵀ·a contains all sums of the norm, and the gradient of a is one GEMM over [a, dz].
//
// A norm does not see a constant added to its input, so the convolution reads ã = a - o, o a constant near each
// channel's mean: then no sum cancels, and half types keep their digits. Derivation: docs/lab/2026-11-expand.md.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/statistics_output.h"
#include "bantam/kernels/norm/batch_norm.h"
#include "bantam/kernels/norm/batch_norm_add.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"

namespace bantam::kernels {

/// c3 (rows, out) = ã·wᵀ; ã (rows, in), w (out, in).
using ExpandShape = PointwiseShape;

/// Whether the algebra applies and pays: float16 or bfloat16, `in` a multiple of 64 up to 512, `out` a multiple of 128
/// and at least 2·in, at least 16·in rows; relu before the convolution and after the sum.
bool expand_supports(const ExpandShape& shape, DType dtype, ActivationFunction before, ActivationFunction after);

/// Scratch bytes of every kernel below (the largest); shape, dtype and target only.
std::size_t expand_workspace_bytes(const ExpandShape& shape, DType dtype, DeviceKind target);

/// Moments of ã's rows, float32, as backward keeps them.
struct ExpandMoments {
  float* mean = nullptr;        ///< (in)
  float* covariance = nullptr;  ///< (in, in), biased
};

/// ã (rows, in), of `dtype` = relu(z) - o, z = x̂·scale + shift of `x`, rounded once; o (in) depends on scale and shift
/// alone (expand_origin.h). And its moments, unless their pointers are null. Deterministic.
using ExpandCentre = void(const Exec&, const ExpandShape&, DType dtype, const NormOperand& x, void* centred,
                          const ExpandMoments& moments, Workspace);

/// Batch statistics of c3 from ã's moments: statistics.mean gets w·mean(ã), that of c3 as the kernels below compute it;
/// the running mean moves by the mean of the convolution of a, w·(o + mean(ã)). `products` (out, in) float32 gets
/// w·covariance, which backward reads. `before` has the scale and shift that o depends on.
using ExpandStatistics = void(const Exec&, const ExpandShape&, DType dtype, const void* w, const ExpandMoments& moments,
                              const BatchNormAffine& before, const StatisticsOutput& statistics, float* products,
                              Workspace);

/// y (rows, out) = relu(norm(ã·wᵀ) + residual), rounded once, and `mask`, the bits of relu' (masked_activation.h),
/// unless it is null. `product.x` is ã, and its norm, without an activation, that of ã·wᵀ. The residual may have a
/// norm, without an activation. y may alias residual.x. Deterministic.
using ExpandSum = void(const Exec&, const ExpandShape&, DType dtype, const NormOperand& product, const void* w,
                       const NormOperand& residual, void* y, std::uint8_t* mask, Workspace);

/// dz (rows, channels) = f'·(dy + other) as SumGradient says, and sums (channels), float32, Σ dz. dz may alias dy or
/// other. Workspace: batch_norm_workspace_bytes. Deterministic.
using SumGradientTotals = void(const Exec&, const BatchNormShape& shape, DType dtype, const SumGradient& gradient,
                               void* dz, float* sums, Workspace);

/// The tensors that backward reads.
struct ExpandInputs {
  NormOperand x;        ///< the input of the norm before the convolution, and that norm with relu
  NormOperand product;  ///< ã, and the norm of ã·wᵀ
  const void* w = nullptr;
  ExpandMoments moments;
  const float* products = nullptr;  ///< (out, in), of expand_statistics
  const void* dz = nullptr;         ///< (rows, out): the gradient of the sum before its relu
  const float* dz_sums = nullptr;   ///< (out): Σ dz
};

/// Where backward writes. Float32 vectors and dw are added to where `accumulate`; null: not wanted.
struct ExpandGradients {
  float* dw = nullptr;                                       ///< (out, in)
  float *dscale = nullptr, *dshift = nullptr;                ///< (out), of the norm after the convolution
  float *dscale_before = nullptr, *dshift_before = nullptr;  ///< (in), of the norm before it
  bool accumulate_w = false, accumulate_after = false, accumulate_before = false;
  /// (rows, in), of `dtype`: the gradient of that norm's output before its relu. Must not alias another operand.
  void* dz_before = nullptr;
  float* totals = nullptr;  ///< (2, in): Σ dz_before, Σ dz_before·x̂, as NormInputGradient reads them
};

/// The gradients of w, of both norms' vectors and of the first norm's output. Partial sums in a fixed order.
/// Deterministic.
using ExpandBackward = void(const Exec&, const ExpandShape&, DType dtype, const ExpandInputs& in,
                            const ExpandGradients& to, Workspace);

BANTAM_DECLARE_KERNEL(ExpandCentre, expand_centre);
BANTAM_DECLARE_KERNEL(ExpandStatistics, expand_statistics);
BANTAM_DECLARE_KERNEL(ExpandSum, expand_sum);
BANTAM_DECLARE_KERNEL(SumGradientTotals, sum_gradient_totals);
BANTAM_DECLARE_KERNEL(ExpandBackward, expand_backward);

}  // namespace bantam::kernels
