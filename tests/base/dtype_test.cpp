// Element types: sizes and names.
#include "bantam/base/dtype.h"

#include <string>

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::dtype_test {
namespace {

TEST(DType, EachHasAName) {
  EXPECT_EQ(to_string(DType::float32), "float32");
  EXPECT_EQ(to_string(DType::float16), "float16");
  EXPECT_EQ(to_string(DType::bfloat16), "bfloat16");
  EXPECT_EQ(to_string(DType::float64), "float64");
  EXPECT_EQ(to_string(DType::uint8), "uint8");
  EXPECT_EQ(to_string(DType::int32), "int32");
  EXPECT_EQ(to_string(DType::int64), "int64");
}

TEST(DType, SizesMatchTheirTypes) {
  EXPECT_EQ(size_of(dtype_of<float>), sizeof(float));
  EXPECT_EQ(size_of(dtype_of<Half>), sizeof(Half));
  EXPECT_EQ(size_of(dtype_of<BFloat16>), sizeof(BFloat16));
  EXPECT_EQ(size_of(dtype_of<double>), sizeof(double));
  EXPECT_EQ(size_of(dtype_of<std::uint8_t>), 1u);
  EXPECT_EQ(size_of(dtype_of<std::int32_t>), 4u);
  EXPECT_EQ(size_of(dtype_of<std::int64_t>), 8u);
}

TEST(DType, KindsAreTold) {
  EXPECT_TRUE(is_half(DType::float16));
  EXPECT_FALSE(is_half(DType::float32));
}

}  // namespace
}  // namespace bantam::dtype_test
