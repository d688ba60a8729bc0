// Element types: sizes, names there and back, and the error for unknown names.
#include "bantam/base/dtype.h"

#include <string>

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

TEST(DType, NamesGoThereAndBack) {
  for (const DType dtype :
       {DType::float32, DType::float16, DType::bfloat16, DType::float64, DType::uint8, DType::int32, DType::int64})
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype) << to_string(dtype);
  EXPECT_EQ(to_string(DType::bfloat16), "bfloat16");
}

TEST(DType, UnknownNamesAreRefused) {
  try {
    parse_dtype("float8");
    FAIL() << "accepted";
  } catch (const DTypeError& error) {
    EXPECT_STREQ(error.what(),
                 "unknown element type 'float8'; expected float32, float16, bfloat16, float64, uint8, int32 or int64");
  }
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
  EXPECT_TRUE(is_floating(DType::bfloat16));
  EXPECT_FALSE(is_floating(DType::int32));
  EXPECT_TRUE(is_half(DType::float16));
  EXPECT_FALSE(is_half(DType::float32));
}

}  // namespace
}  // namespace bantam
