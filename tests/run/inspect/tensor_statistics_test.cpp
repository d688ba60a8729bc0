// Statistics of small tensors of every type, by hand.
#include "bantam/run/inspect/tensor_statistics.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

namespace bantam::run::tensor_statistics_test {
namespace {

template <class T>
HostTensor tensor_of(const std::vector<T>& values) {
  HostTensor tensor{dtype_of<T>, Shape{static_cast<std::int64_t>(values.size())}, {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

template <class T>
class TensorStatisticsTest : public ::testing::Test {};
using Types = ::testing::Types<float, double, Half, BFloat16, std::uint8_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(TensorStatisticsTest, Types);

TYPED_TEST(TensorStatisticsTest, OfFourValues) {
  // 0, 2, 4, 10: mean 4, squares of the differences 16 + 4 + 0 + 36 = 56; all exact in every type.
  const TensorStatistics found =
      statistics_of(tensor_of<TypeParam>({TypeParam(0), TypeParam(2), TypeParam(4), TypeParam(10)}));
  EXPECT_EQ(found.finite, 4);
  EXPECT_EQ(found.not_finite, 0);
  EXPECT_EQ(found.zeros, 1);
  EXPECT_EQ(found.zero_share(), 0.25);
  EXPECT_EQ(found.min, 0);
  EXPECT_EQ(found.max, 10);
  EXPECT_EQ(found.mean, 4);
  EXPECT_EQ(found.deviation, std::sqrt(14.0));
}

TEST(TensorStatistics, NegativeValuesAndNegativeZero) {
  const TensorStatistics found = statistics_of(tensor_of<float>({-3.0f, -0.0f, -1.5f}));
  EXPECT_EQ(found.min, -3);
  EXPECT_EQ(found.max, 0);
  EXPECT_EQ(found.zeros, 1);
  EXPECT_EQ(found.mean, -1.5);
}

TEST(TensorStatistics, ValuesThatAreNotFiniteAreCountedApart) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const HostTensor& tensor :
       {tensor_of<float>({1, infinity, nan, -infinity, 3}),
        tensor_of<Half>({Half(1), Half(infinity), Half(nan), Half(-infinity), Half(3)}),
        tensor_of<BFloat16>({BFloat16(1), BFloat16(infinity), BFloat16(nan), BFloat16(-infinity), BFloat16(3)})}) {
    const TensorStatistics found = statistics_of(tensor);
    EXPECT_EQ(found.not_finite, 3);
    EXPECT_EQ(found.finite, 2);
    EXPECT_EQ(found.min, 1);
    EXPECT_EQ(found.max, 3);
    EXPECT_EQ(found.mean, 2);
    EXPECT_EQ(found.deviation, 1);
  }
}

TEST(TensorStatistics, WithoutAFiniteValueAllIsZero) {
  const TensorStatistics empty = statistics_of(tensor_of<float>({}));
  EXPECT_EQ(empty.finite, 0);
  EXPECT_EQ(empty.zero_share(), 0);
  const TensorStatistics bad = statistics_of(tensor_of<double>({std::nan(""), std::nan("")}));
  EXPECT_EQ(bad.not_finite, 2);
  EXPECT_EQ(bad.min, 0);
  EXPECT_EQ(bad.deviation, 0);
}

}  // namespace
}  // namespace bantam::run::tensor_statistics_test
