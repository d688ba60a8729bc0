// Global response normalisation: each channel of a sample is multiplied by how large its L2 norm over all positions is
// beside the mean of the channels' norms. Source: Woo et al. 2023, "ConvNeXt V2", section 3; the mean, and x that is
// added, as in the authors' code. Statistics, scale and shift are float32 whatever x is.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/norm/batch_norm.h"
#include "bantam/kernels/norm/group_norm.h"

namespace bantam::kernels {

/// x and the vectors that it is normalised with. The shape of a call is a group norm's of one group.
struct ResponseOperand {
  const void* x = nullptr;         ///< (samples, positions, channels), of the call's `dtype`
  const float* scale = nullptr;    ///< γ (channels), float32
  const float* shift = nullptr;    ///< β (channels), float32; backward does not read it
  const float* norm = nullptr;     ///< G (samples, channels), float32: saved by forward
  const float* inverse = nullptr;  ///< (samples), float32: 1/(mean(G) + epsilon), saved by forward
};
/// Where forward writes the statistics, as ResponseOperand has them.
struct ResponseStatistics {
  float* norm = nullptr;
  float* inverse = nullptr;
  float epsilon = 1e-6f;
};

/// Scratch bytes for forward and for backward (the larger of the two); shape and target only.
std::size_t global_response_workspace_bytes(const GroupNormShape& shape, DeviceKind target);

/// y = γ·(x·N) + β + x, computed as x·(γ·N + 1) + β, with G[n, c] = √(Σ over positions of x²) and N[n, c] =
/// G[n, c]/(mean over channels of G[n, ·] + epsilon). `operand` has x, scale and shift; the statistics are written. y
/// may be null, where only they are wanted, and may alias x. Deterministic.
using GlobalResponseForward = void(const Exec&, const GroupNormShape&, DType dtype, const ResponseOperand& operand,
                                   const ResponseStatistics& to, void* y, Workspace);

/// y from x and the statistics that forward saved: the bits that forward wrote. y may alias x.
using GlobalResponseApply = void(const Exec&, const GroupNormShape&, DType dtype, const ResponseOperand& operand,
                                 void* y);

/// With sums over the positions of a sample, P[n, c] = Σ dy·x, dscale = Σ over samples of P·N and dshift = Σ dy over
/// samples and positions. For dx, write r = 1/(mean(G) + epsilon), so that N = G·r, and C for the number of channels.
/// The gradient of N is dN = γ·P. It reaches G[c] directly, by r, and the mean of all norms, by -r² and 1/C:
///   dG[c] = r·dN[c] - (1/C)·Σ_k dN[k]·G[k]·r² = r·(dN[c] - (1/C)·Σ_k dN[k]·N[k]),
/// and with dG/dx = x/G
///   dx = dy·(γ·N + 1) + (x/G)·dG.
/// Where G is 0, all x are: x/G is defined as 0, as PyTorch's gradient of a norm is, so that dx = dy. dy like x. dx may
/// alias dy. Of no samples dscale and dshift are 0. Two passes over x and dy, of which the second is left out with dx.
/// Deterministic.
using GlobalResponseBackward = void(const Exec&, const GroupNormShape&, DType dtype, const ResponseOperand& operand,
                                    const void* dy, const NormGradients&, Workspace);
BANTAM_DECLARE_KERNEL(GlobalResponseForward, global_response_forward);
BANTAM_DECLARE_KERNEL(GlobalResponseApply, global_response_apply);
BANTAM_DECLARE_KERNEL(GlobalResponseBackward, global_response_backward);

}  // namespace bantam::kernels
