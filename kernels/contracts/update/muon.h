// Muon (Jordan 2024): the momentum of a weight matrix is made nearly orthogonal by Newton-Schulz steps, and so moves
// the weights. Kernels over an arena's chunks before and after the steps, and what a step needs besides matrix
// products.
#pragma once

#include <cstdint>

#include "bantam/kernels/contracts/update/update.h"

namespace bantam::kernels {

/// A step's polynomial: X becomes a·X + b·(XXᵀ)X + c·(XXᵀ)²X, which moves singular values towards 1.
struct NewtonSchulz {
  static constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
  static constexpr int kSteps = 5;
  static constexpr float kEpsilon = 1e-7f;  ///< added to the norm that a matrix is divided by
};

/// One weight matrix: a span of the arena.
struct MuonMatrix {
  std::int32_t first = 0, chunks = 0;  ///< its chunks in arena.chunks
  std::int64_t elements = 0;           ///< padding included
  float scale = 1.0f;                  ///< what its steps are multiplied by
};

/// Follows `begin_update`, over arena.chunks (spans that are frozen excepted); g as in ApplyUpdate, without decay.
/// Unless found_nonfinite: m = beta1·m + (1-beta1)·g in moment1; u = m, or with `nesterov` beta1·m + (1-beta1)·g, in
/// moment2; and each chunk's Σu² in arena.chunks.sums. Asynchronous on CUDA; deterministic.
using MuonMomentum = void(const Exec&, const UpdateArena&, bool nesterov, const UpdateControl* control);

/// x = u/(|u| + epsilon); x has matrix.elements.
using MuonNormalize = void(const Exec&, const UpdateArena&, const MuonMatrix&, float* x);

/// out = a·I + b·gram + c·square, (n, n) each; square is gram², and may be out.
using MuonPolynomial = void(const Exec&, std::int64_t n, const float* gram, const float* square, float* out);

/// w -= lr·wd·w + lr·scale·u, then the matrix's compute copy, unless found_nonfinite.
using MuonApply = void(const Exec&, const UpdateArena&, const MuonMatrix&, const UpdateControl* control);

namespace cpu {
MuonMomentum muon_momentum;
MuonNormalize muon_normalize;
MuonPolynomial muon_polynomial;
MuonApply muon_apply;
}  // namespace cpu
namespace cuda {
MuonMomentum muon_momentum;
MuonNormalize muon_normalize;
MuonPolynomial muon_polynomial;
MuonApply muon_apply;
}  // namespace cuda
namespace meta {
MuonMomentum muon_momentum;
MuonNormalize muon_normalize;
MuonPolynomial muon_polynomial;
MuonApply muon_apply;
}  // namespace meta

}  // namespace bantam::kernels
