// Which convolutions of few channels run kernels of our own, and how their weight gradients are cut: rules on shapes,
// on any machine.
#include <gtest/gtest.h>

#include "bantam/kernels/conv/few_channels_parts.h"
#include "bantam/kernels/conv/workspace_rules.h"
#include "tests/kernels/conv/conv2d_shapes.h"

namespace bantam::testing::few_channels_rules_test {
namespace {

namespace cuda = kernels::cuda;

/// 3x3 'same'.
Conv2dShape same(std::int64_t batch, std::int64_t size, std::int64_t in, std::int64_t out) {
  return with_padding(base(batch, size, in, out, 3), 1, 1, 1, 1);
}

TEST(FewChannelsRules, KernelsHaveShapesOfTheirOwn) {
  const Conv2dShape good = same(2, 31, 24, 64);
  EXPECT_TRUE(cuda::has_few_channels_kernel(good, DType::float16));
  EXPECT_TRUE(cuda::has_few_channels_kernel(good, DType::bfloat16));
  EXPECT_FALSE(cuda::has_few_channels_kernel(good, DType::float32));
  for (const std::int64_t in : {8, 16, 24, 32})
    EXPECT_TRUE(cuda::has_few_channels_kernel(same(1, 7, in, 8), DType::float16));
  for (const std::int64_t in : {4, 12, 40})
    EXPECT_FALSE(cuda::has_few_channels_kernel(same(1, 7, in, 8), DType::float16));
  EXPECT_FALSE(cuda::has_few_channels_kernel(same(1, 7, 8, 12), DType::float16));
  EXPECT_FALSE(cuda::has_few_channels_kernel(same(0, 7, 8, 8), DType::float16)) << "nothing to do";
  EXPECT_FALSE(cuda::has_few_channels_kernel(base(1, 9, 8, 8, 5), DType::float16)) << "5x5";
  EXPECT_FALSE(cuda::has_few_channels_kernel(base(1, 9, 8, 8, 3, 2), DType::float16)) << "stride 2";
  Conv2dShape other = good;
  other.dilation_w = 2;
  EXPECT_FALSE(cuda::has_few_channels_kernel(other, DType::float16));
  other = good;
  other.groups = 2;
  EXPECT_FALSE(cuda::has_few_channels_kernel(other, DType::float16));
}

TEST(FewChannelsRules, ArePreferredWhereImagesAreLarge) {
  const auto prefers = [](const Conv2dShape& s) { return cuda::prefers_few_channels_kernel(s, DType::float16); };
  EXPECT_TRUE(prefers(same(1536, 31, 24, 64)));
  EXPECT_TRUE(prefers(same(132, 32, 16, 16))) << "528 tiles";
  EXPECT_FALSE(prefers(same(131, 32, 16, 16))) << "too few tiles";
  EXPECT_FALSE(prefers(same(4096, 8, 16, 16))) << "a quarter of a tile";
  EXPECT_FALSE(prefers(same(1536, 20, 24, 64))) << "less than half of four tiles";
  EXPECT_FALSE(prefers(same(1536, 31, 24, 136))) << "x would be read three times";
  EXPECT_FALSE(cuda::prefers_few_channels_kernel(same(1536, 31, 24, 64), DType::float32));
}

TEST(FewChannelsRules, PartialSumsFitTheirWorkspace) {
  for (const std::int64_t in : {8, 16, 24, 32})
    for (const std::int64_t out : {8, 64, 128}) {
      const Conv2dShape large = same(1536, 31, in, out);
      const std::int64_t parts = cuda::few_channels_grad_weight_parts(large);
      EXPECT_EQ(parts % kReferenceMultiprocessors, 0) << "multiprocessors have the same work";
      EXPECT_LE(cuda::few_channels_grad_weight_bytes(large), std::int64_t{32} << 20);
      const auto rule = cuda::conv2d_workspace_rule(large, DType::float16, Conv2dPass::grad_weight);
      EXPECT_GE(rule.patches_bytes, static_cast<std::size_t>(cuda::few_channels_grad_weight_bytes(large)));
    }
  EXPECT_EQ(cuda::few_channels_grad_weight_parts(same(1536, 31, 24, 64)), 396);
  EXPECT_EQ(cuda::few_channels_grad_weight_parts(same(1536, 31, 32, 128)), 132);
  EXPECT_EQ(cuda::few_channels_grad_weight_parts(same(1, 31, 24, 64)), 8) << "a part for each tile: none is empty";
}

}  // namespace
}  // namespace bantam::testing::few_channels_rules_test
