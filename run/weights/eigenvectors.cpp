// Householder reflections make the matrix tridiagonal, rotations with Wilkinson's shift make it diagonal.
// Source: Golub and Van Loan 2013, "Matrix Computations", algorithms 8.3.1 to 8.3.3.
#include "bantam/run/weights/eigenvectors.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "bantam/base/error.h"

namespace bantam::run {
namespace {

class SymmetricSolver {
 public:
  SymmetricSolver(std::span<const double> matrix, std::int64_t n)
      : n_(n), a_(matrix.begin(), matrix.end()), rows_(a_.size()), diagonal_(size(n)), beside_(size(n)) {}

  Eigenvectors solve() {
    make_tridiagonal();
    make_diagonal();
    std::vector<std::size_t> order(size(n_));
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return diagonal_[i]; });
    Eigenvectors result;
    for (const std::size_t i : order) {
      result.values.push_back(diagonal_[i]);
      const double* const row = rows_.data() + i * size(n_);
      result.vectors.insert(result.vectors.end(), row, row + n_);
    }
    return result;
  }

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  double& a(std::int64_t i, std::int64_t j) { return a_[size(i * n_ + j)]; }
  double* row(std::int64_t i) { return rows_.data() + i * n_; }

  /// A = Q·T·Qᵀ. T goes to `diagonal_` and `beside_`, Qᵀ to `rows_`.
  void make_tridiagonal() {
    std::vector<double> v(size(n_)), p(size(n_)), factors(size(n_));
    for (std::int64_t k = 0; k + 1 < n_; ++k) factors[size(k)] = reflect_column(k, v, p);
    for (std::int64_t i = 0; i < n_; ++i) diagonal_[size(i)] = a(i, i), row(i)[i] = 1;
    // Qᵀ = …·H₁·H₀: the last reflection first, each on what it changes.
    for (std::int64_t k = n_ - 2; k >= 0; --k) {
      for (std::int64_t i = k + 1; i < n_ && factors[size(k)] != 0; ++i) {  // a row of Qᵀ: of Hₖ₊₁·… times Hₖ
        double product = 0;
        for (std::int64_t j = k + 1; j < n_; ++j) product += row(i)[j] * a(j, k);
        for (std::int64_t j = k + 1; j < n_; ++j) row(i)[j] -= factors[size(k)] * product * a(j, k);
      }
    }
  }

  /// Zeros column k below T's diagonals by H = I - factor·v·vᵀ, keeps v there, and applies H to both sides of the rest.
  double reflect_column(std::int64_t k, std::vector<double>& v, std::vector<double>& p) {
    double below = 0;
    for (std::int64_t i = k + 2; i < n_; ++i) below += a(i, k) * a(i, k);
    beside_[size(k)] = a(k + 1, k);
    if (below == 0) return 0;
    const double first = a(k + 1, k), length = std::sqrt(first * first + below);
    beside_[size(k)] = first > 0 ? -length : length;
    a(k + 1, k) = first - beside_[size(k)];
    const double factor = 2 / (a(k + 1, k) * a(k + 1, k) + below);
    double dot = 0;
    for (std::int64_t i = k + 1; i < n_; ++i) v[size(i)] = a(i, k);
    for (std::int64_t i = k + 1; i < n_; ++i) {
      double sum = 0;
      for (std::int64_t j = k + 1; j < n_; ++j) sum += a(std::max(i, j), std::min(i, j)) * v[size(j)];
      p[size(i)] = factor * sum;
      dot += p[size(i)] * v[size(i)];
    }
    for (std::int64_t i = k + 1; i < n_; ++i) p[size(i)] -= factor / 2 * dot * v[size(i)];
    for (std::int64_t i = k + 1; i < n_; ++i)
      for (std::int64_t j = k + 1; j <= i; ++j) a(i, j) -= v[size(i)] * p[size(j)] + p[size(i)] * v[size(j)];
    return factor;
  }

  bool is_zero_beside(std::int64_t i) const {
    const double sum = std::abs(diagonal_[size(i)]) + std::abs(diagonal_[size(i + 1)]);
    return std::abs(beside_[size(i)]) <= std::numeric_limits<double>::epsilon() * sum;
  }

  /// T = Vᵀ·D·V by steps on the last block that is not diagonal; V is multiplied to `rows_`.
  void make_diagonal() {
    constexpr std::int64_t kStepsOfValue = 30;  // three are usual
    std::int64_t left = kStepsOfValue * n_;
    for (std::int64_t last = n_ - 1; last > 0;) {
      if (is_zero_beside(last - 1)) {
        --last;
        continue;
      }
      std::int64_t first = last - 1;
      while (first > 0 && !is_zero_beside(first - 1)) --first;
      if (--left < 0) throw DataError("eigenvectors: no convergence; are all values finite?");
      step(first, last);
    }
  }

  /// One implicit step on rows first … last of T: rotations chase the element that the first brings in.
  void step(std::int64_t first, std::int64_t last) {
    double* const d = diagonal_.data();
    double* const e = beside_.data();
    const double half = (d[last - 1] - d[last]) / 2, end = e[last - 1];
    const double root = std::hypot(half, end), shift = d[last] - end / (half + (half < 0 ? -root : root)) * end;
    double x = d[first] - shift, z = e[first];
    for (std::int64_t k = first; k < last; ++k) {
      const double length = std::hypot(x, z), c = length > 0 ? x / length : 1, s = length > 0 ? z / length : 0;
      if (k > first) e[k - 1] = length;
      const double upper = d[k], lower = d[k + 1], cross = 2 * c * s * e[k];
      d[k] = c * c * upper + cross + s * s * lower;
      d[k + 1] = s * s * upper - cross + c * c * lower;
      e[k] = c * s * (lower - upper) + (c * c - s * s) * e[k];
      if (k + 1 < last) x = e[k], z = s * e[k + 1], e[k + 1] *= c;
      double *const one = row(k), *const two = row(k + 1);
      for (std::int64_t i = 0; i < n_; ++i) {
        const double value = one[i];
        one[i] = c * value + s * two[i];
        two[i] = c * two[i] - s * value;
      }
    }
  }

  std::int64_t n_;
  std::vector<double> a_, rows_;           ///< the matrix, then reflections; what becomes the eigenvectors
  std::vector<double> diagonal_, beside_;  ///< T's
};

}  // namespace

Eigenvectors eigenvectors(std::span<const double> matrix, std::int64_t n) { return SymmetricSolver(matrix, n).solve(); }

}  // namespace bantam::run
