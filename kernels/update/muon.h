// Muon (Jordan 2024): the momentum of a weight matrix is made nearly orthogonal by Newton-Schulz steps, and so moves
// the weights. Kernels over an arena's chunks before and after the steps, and what a step needs besides matrix
// products.
#pragma once

#include <cstdint>

#include "bantam/base/philox.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/update/update.h"

namespace bantam::kernels {

/// A step's polynomial: X becomes a·X + b·(XXᵀ)X + c·(XXᵀ)²X, which moves singular values s towards 1: each becomes
/// p(s) = a·s + b·s³ + c·s⁵.
///
/// Why nothing overflows a half type with Jordan's coefficients, the defaults: |X| = 1 (Frobenius) at first, so s is in
/// [0, 1]. p's largest value there is p(0.5545) = 1.2024, and p maps [0, 1.2024] into itself (its other extremum is
/// p(1.0502) = 0.68; p(s) < s from s = 0.868 to 1.2637, so that 0.06 remain for rounding). So before every step s
/// <= 1.21, and no element of a matrix exceeds its largest singular value: |X| <= 1.21, |XXᵀ| <= 1.47, |(XXᵀ)²|
/// <= 2.15, and the polynomial, whose eigenvalues are a + b·s² + c·s⁴, has them in [0.63, 3.45]. Nothing underflows
/// that counts: an element of X lost in float16 (below 2^-25) weighs less than a rounding of the whole for matrices of
/// up to 2^28 elements.
///
/// Other coefficients are accepted where s stays below kMostSingularValue through all steps, from 1.05 on, 0.05 being
/// for rounding: |X| <= 2, |XXᵀ| <= 4 and |(XXᵀ)²| <= 16 then.
struct NewtonSchulz {
  static constexpr float kEpsilon = 1e-7f;  ///< added to the norm that a matrix is divided by
  static constexpr double kMostSingularValue = 2.0, kFirstSingularValue = 1.05;
  float a = 3.4445f, b = -4.7750f, c = 2.0315f;
};

/// Which updates scale weights to a norm before they move them: the first, and every `every`-th after it; 0: none.
struct MuonNormalization {
  std::int64_t every = 0;

  /// `updates`: those done, this one counted.
  BANTAM_HOST_DEVICE bool is_due(std::int64_t updates) const { return every > 0 && (updates - 1) % every == 0; }
};

/// Weight matrices of one shape: spans of the arena, whose steps run side by side. X of the matrices, in float32,
/// float16 or bfloat16, lie `elements` apart.
struct MuonMatrices {
  static constexpr std::int32_t kMost = 16;
  std::int32_t first[kMost] = {};  ///< each matrix' first chunk in arena.chunks
  std::int32_t count = 0;          ///< matrices
  std::int32_t chunks = 0;         ///< in each matrix
  std::int64_t elements = 0;       ///< in each matrix, padding included
  std::int64_t values = 0;         ///< in each matrix, without padding: products write no more of X
  float scale = 1.0f;              ///< what their steps are multiplied by
  float norm = 0.0f;               ///< that their weights are scaled to where that is due
};

/// Square matrices (n, n), `stride` elements apart.
struct MuonSquares {
  std::int64_t count = 1, n = 0, stride = 0;
};

/// Follows `begin_update`, over arena.chunks (spans that are frozen excepted); g as in ApplyUpdate, without decay.
/// Unless found_nonfinite: m = beta1·m + (1-beta1)·g in slot 0; u = m, or with `nesterov` beta1·m + (1-beta1)·g, in
/// slot 1; and each chunk's Σu² in arena.chunks.sums, with Σw² after it where a normalization is due. Asynchronous on
/// CUDA; deterministic.
using MuonMomentum = void(const Exec&, const UpdateArena&, bool nesterov, const MuonNormalization&,
                          const UpdateControl* control);

/// x = u/(|u| + epsilon) of each matrix, in `dtype`: float32 arithmetic, rounded once.
using MuonNormalize = void(const Exec&, const UpdateArena&, const MuonMatrices&, DType dtype, void* x);

/// out = a·I + b·gram + c·square of each, all of `dtype`: float32 arithmetic, rounded once; square is gram², and may be
/// out.
using MuonPolynomial = void(const Exec&, const MuonSquares&, const NewtonSchulz&, DType dtype, const void* gram,
                            const void* square, void* out);

/// w -= lr·wd·w + lr·scale·x, x of `dtype` (0 in the padding), then the matrices' compute copies, unless
/// found_nonfinite. Where a normalization is due w is multiplied by norm/|w| first, |w| (Frobenius) being that of
/// muon_momentum's sums; a matrix of zeros stays.
using MuonApply = void(const Exec&, const UpdateArena&, const MuonMatrices&, const MuonNormalization&, DType dtype,
                       const void* x, const UpdateControl* control);

BANTAM_DECLARE_KERNEL(MuonMomentum, muon_momentum);
BANTAM_DECLARE_KERNEL(MuonNormalize, muon_normalize);
BANTAM_DECLARE_KERNEL(MuonPolynomial, muon_polynomial);
BANTAM_DECLARE_KERNEL(MuonApply, muon_apply);

}  // namespace bantam::kernels
