// Shapes: extents, axes from either end, and the checks that keep products inside 64 bits.
#include "bantam/base/shape.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::shape_test {
namespace {

template <class Call>
std::string shape_error_of(Call&& call) {
  try {
    call();
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Shape, HoldsExtents) {
  const Shape shape = {16, 32, 31, 3};
  EXPECT_EQ(shape.rank(), 4);
  EXPECT_EQ(shape[2], 31);
  EXPECT_EQ(shape[-1], 3);
  EXPECT_EQ(shape[-4], 16);
  EXPECT_EQ(shape.elements(), 16 * 32 * 31 * 3);
  EXPECT_EQ(to_string(shape), "(16, 32, 31, 3)");
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(to_string(Shape()), "()");
  EXPECT_EQ(Shape({5, 0, 2}).elements(), 0);
}

TEST(Shape, MakesRelatives) {
  const Shape shape = {2, 3};
  EXPECT_EQ(shape.with(-1, 7), Shape({2, 7}));
  EXPECT_EQ(shape.prepend(9), Shape({9, 2, 3}));
  EXPECT_EQ(shape.without_first(), Shape({3}));
  EXPECT_NE(shape, Shape({2, 3, 1}));
  EXPECT_NE(shape, Shape({2, 4}));
}

TEST(Shape, ChecksItsExtents) {
  EXPECT_EQ(shape_error_of([] { Shape({2, -1}); }), "a shape's extents are not negative, got -1");
  EXPECT_EQ(shape_error_of([] { Shape({1LL << 40, 1LL << 40}); }), "a shape's element count overflows");
  // Zero elements must not hide an overflow: other axes may be replaced later.
  EXPECT_EQ(shape_error_of([] { Shape({0, 1LL << 40, 1LL << 40}); }), "a shape's element count overflows");
  EXPECT_EQ(shape_error_of([] { Shape(std::vector<std::int64_t>(9, 1)); }), "a shape has at most 8 axes, got 9");
  EXPECT_EQ(shape_error_of([] { Shape(std::vector<std::int64_t>(8, 1)).prepend(2); }),
            "a shape has at most 8 axes, got 9");
  EXPECT_EQ(shape_error_of([] { (void)Shape({4, 5})[2]; }), "axis 2 is outside shape (4, 5)");
  EXPECT_EQ(shape_error_of([] { (void)Shape({4, 5}).with(-3, 1); }), "axis -3 is outside shape (4, 5)");
  EXPECT_EQ(shape_error_of([] { (void)Shape().without_first(); }), "a scalar has no first axis");
}

}  // namespace
}  // namespace bantam::shape_test
