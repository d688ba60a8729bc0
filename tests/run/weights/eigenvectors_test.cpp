// Eigenvectors of symmetric matrices: by hand, against their definition, of matrices with equal and with no eigenvalues
// but zero.
#include "bantam/run/weights/eigenvectors.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"

namespace bantam::run::eigenvectors_test {
namespace {

double entry(const std::vector<double>& matrix, std::int64_t n, std::int64_t i, std::int64_t j) {
  return matrix[static_cast<std::size_t>(i * n + j)];
}

/// `rank` random vectors' sum of outer products: eigenvalues from about 1 to 1e-4 of the largest, the others 0.
std::vector<double> random_covariance(std::int64_t n, std::int64_t rank) {
  PhiloxSequence random(philox_key(7, RandomPurpose::test));
  std::vector<double> sum(static_cast<std::size_t>(n * n)), vector(static_cast<std::size_t>(n));
  for (std::int64_t k = 0; k < rank; ++k) {
    const double scale = std::pow(1e-2, static_cast<double>(k) / static_cast<double>(rank));
    for (double& value : vector) value = scale * random.uniform(-1.0f, 1.0f);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        sum[static_cast<std::size_t>(i * n + j)] +=
            vector[static_cast<std::size_t>(i)] * vector[static_cast<std::size_t>(j)];
  }
  return sum;
}

/// A·v = λ·v, v·w = 0 or 1, and eigenvalues fall. Errors of a stable method are some n roundings of the largest.
void expect_eigenvectors(const std::vector<double>& matrix, std::int64_t n) {
  const Eigenvectors found = eigenvectors(matrix, n);
  ASSERT_EQ(found.values.size(), static_cast<std::size_t>(n));
  ASSERT_EQ(found.vectors.size(), static_cast<std::size_t>(n * n));
  double largest = 0;
  for (const double value : found.values) largest = std::max(largest, std::abs(value));
  const double rounding = 4 * static_cast<double>(n) * std::numeric_limits<double>::epsilon();
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = found.values[static_cast<std::size_t>(i)];
    if (i > 0) {
      EXPECT_LE(value, found.values[static_cast<std::size_t>(i - 1)]);
    }
    for (std::int64_t j = 0; j < n; ++j) {
      double image = 0, dot = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        image += entry(matrix, n, j, k) * entry(found.vectors, n, i, k);
        dot += entry(found.vectors, n, i, k) * entry(found.vectors, n, j, k);
      }
      EXPECT_NEAR(image, value * entry(found.vectors, n, i, j), rounding * largest) << n << ": " << i << ' ' << j;
      EXPECT_NEAR(dot, i == j ? 1.0 : 0.0, rounding) << n << ": " << i << ' ' << j;
    }
  }
}

// [2, 1; 1, 2]: 3 along (1, 1)/√2, 1 along (1, -1)/√2.
TEST(Eigenvectors, OfTwoByHand) {
  const Eigenvectors found = eigenvectors(std::vector<double>{2, 1, 1, 2}, 2);
  EXPECT_NEAR(found.values[0], 3, 1e-15);
  EXPECT_NEAR(found.values[1], 1, 1e-15);
  const double half = std::sqrt(0.5);
  for (const double value : found.vectors) EXPECT_NEAR(std::abs(value), half, 1e-15);
  EXPECT_GT(found.vectors[0] * found.vectors[1], 0);
  EXPECT_LT(found.vectors[2] * found.vectors[3], 0);
}

// [2, -1, 0; -1, 2, -1; 0, -1, 2]: 2 + √2, 2 and 2 - √2.
TEST(Eigenvectors, OfThreeByHand) {
  const std::vector<double> matrix = {2, -1, 0, -1, 2, -1, 0, -1, 2};
  const Eigenvectors found = eigenvectors(matrix, 3);
  const double expected[] = {2 + std::sqrt(2.0), 2, 2 - std::sqrt(2.0)};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found.values[i], expected[i], 4e-15) << i;
  expect_eigenvectors(matrix, 3);
}

TEST(Eigenvectors, FollowTheDefinition) {
  for (const std::int64_t n : {1, 2, 5, 27, 75}) expect_eigenvectors(random_covariance(n, 2 * n), n);
}

// Eigenvalues that are equal, among them many zeros.
TEST(Eigenvectors, OfEqualEigenvaluesAreAtRightAngles) {
  for (const std::int64_t n : {4, 27}) expect_eigenvectors(random_covariance(n, n / 2), n);
  expect_eigenvectors(std::vector<double>(16), 4);
  expect_eigenvectors({1, 0, 0, 0, 1, 0, 0, 0, 1}, 3);
  expect_eigenvectors(std::vector<double>(25, 1.0), 5);  // 5 along (1, …, 1), the others 0
  expect_eigenvectors({-1, 0, 0, 4}, 2);
}

TEST(Eigenvectors, RefuseWhatIsNotFinite) {
  EXPECT_THROW(eigenvectors(std::vector<double>(9, std::nan("")), 3), DataError);
}

}  // namespace
}  // namespace bantam::run::eigenvectors_test
