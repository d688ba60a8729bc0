// Eigenvalues and eigenvectors of small symmetric matrices, in float64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bantam::run {

/// The eigenvalues and eigenvectors of a symmetric matrix, the largest eigenvalue first.
struct Eigenvectors {
  std::vector<double> values;   ///< (n)
  std::vector<double> vectors;  ///< (n, n): a unit eigenvector a row, of either sign
};

/// Decomposes `matrix` (n, n), of which the lower triangle is read. Throws DataError where the iteration does not
/// converge (values that are not finite).
Eigenvectors eigenvectors(std::span<const double> matrix, std::int64_t n);

}  // namespace bantam::run
