// Which 3x3 convolutions run the wgmma kernels, and how they are cut into tiles: rules on shapes, on any machine.
#include <gtest/gtest.h>

#include "bantam/kernels/conv/conv2d_statistics.h"
#include "bantam/kernels/conv/warpgroup_conv3x3_parts.h"
#include "tests/kernels/conv/conv2d_shapes.h"

namespace bantam::testing::warpgroup_conv3x3_rules_test {
namespace {

using kernels::WarpgroupConv3x3;
using Extents = WarpgroupConv3x3::Extents;

Conv2dShape same(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t in, std::int64_t out) {
  Conv2dShape s = with_padding(base(batch, height, in, out, 3), 1, 1, 1, 1);
  s.in_w = width;
  return s;
}

WarpgroupConv3x3 problem(const Conv2dShape& s, Conv2dPass pass = Conv2dPass::forward) {
  return kernels::warpgroup_conv3x3_of(s, DType::float16, pass);
}

TEST(WarpgroupConv3x3Rules, ChannelsComeIn64) {
  EXPECT_GT(problem(same(1, 9, 9, 64, 64)).batch, 0);
  EXPECT_GT(problem(same(1, 9, 9, 192, 384)).batch, 0);
  for (const Conv2dShape& s : {same(1, 9, 9, 32, 64), same(1, 9, 9, 64, 192), same(0, 9, 9, 64, 64),
                               base(1, 9, 64, 64, 3), with_padding(base(1, 9, 64, 64, 3, 2), 1, 1, 1, 1)})
    EXPECT_EQ(problem(s).batch, 0);
  EXPECT_EQ(problem(same(1, 9, 9, 64, 192), Conv2dPass::grad_weight).batch, 0);
  const WarpgroupConv3x3 gradient = problem(same(1, 9, 9, 128, 192), Conv2dPass::grad_input);
  EXPECT_TRUE(gradient.gradient);
  EXPECT_EQ(gradient.in, 192);
  EXPECT_EQ(gradient.out, 128);
  EXPECT_EQ(kernels::warpgroup_conv3x3_of(same(1, 9, 9, 64, 64), DType::float32, Conv2dPass::forward).batch, 0);
}

TEST(WarpgroupConv3x3Rules, TilesSuitTheImages) {
  const auto units = [](std::int64_t height, std::int64_t width) {
    return problem(same(5, height, width, 64, 128)).units();
  };
  EXPECT_EQ(units(16, 16), (Extents{2, 2, 1}));
  EXPECT_EQ(units(30, 6), (Extents{1, 4, 1}));
  EXPECT_EQ(units(6, 30), (Extents{4, 1, 1}));
  EXPECT_EQ(units(15, 7), (Extents{1, 2, 2}));
  EXPECT_EQ(units(7, 15), (Extents{2, 1, 2}));
  EXPECT_EQ(units(8, 8), (Extents{1, 1, 4}));
  EXPECT_EQ(units(56, 56), (Extents{1, 1, 4}));
  EXPECT_TRUE(problem(same(5, 32, 32, 64, 64)).tall());
  EXPECT_FALSE(problem(same(5, 16, 16, 64, 64)).tall()) << "half of a tile";
  const WarpgroupConv3x3 small = problem(same(33, 4, 4, 512, 512));
  EXPECT_EQ(small.tile(), (Extents{16, 4, 4})) << "images, columns and rows";
  EXPECT_EQ(small.tiles(), 3);
  for (const WarpgroupConv3x3& s : {small, problem(same(5, 16, 16, 64, 128)), problem(same(3, 8, 8, 64, 640))})
    EXPECT_EQ(s.tile()[0] * s.tile()[1] * s.tile()[2], 256) << "pixels";
}

TEST(WarpgroupConv3x3Rules, ArePreferredWhereTilesAreFull) {
  const auto writes = [](const Conv2dShape& s) { return kernels::conv2d_writes_statistics(s, DType::float16); };
  for (const std::int64_t batch : {1, 512}) {
    EXPECT_TRUE(writes(same(batch, 32, 32, 64, 64)));
    EXPECT_TRUE(writes(same(batch, 16, 16, 128, 128)));
    EXPECT_TRUE(writes(same(batch, 8, 8, 256, 256)));
    EXPECT_TRUE(writes(same(batch, 4, 4, 512, 512)));
    EXPECT_FALSE(writes(same(batch, 14, 14, 256, 256))) << "77 % of its tiles";
    EXPECT_FALSE(writes(same(batch, 7, 7, 512, 512)));
  }
}

}  // namespace
}  // namespace bantam::testing::warpgroup_conv3x3_rules_test
