// Eigen's solver for symmetric matrices, in a source of its own: its templates are large.
#include "bantam/run/weights/eigenvectors.h"

#define EIGEN_MPL2_ONLY
#include <Eigen/Eigenvalues>

#include "bantam/base/error.h"

namespace bantam::run {

Eigenvectors eigenvectors(std::span<const double> matrix, std::int64_t size) {
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(
      Eigen::Map<const Eigen::MatrixXd>(matrix.data(), size, size));
  if (solver.info() != Eigen::Success) throw DataError("whiten: the eigenvectors of the patches were not found");
  Eigenvectors found;
  for (Eigen::Index at = size - 1; at >= 0; --at) {  // eigenvalues increase
    found.values.push_back(solver.eigenvalues()[at]);
    const auto vector = solver.eigenvectors().col(at);
    found.vectors.insert(found.vectors.end(), vector.begin(), vector.end());
  }
  return found;
}

}  // namespace bantam::run
