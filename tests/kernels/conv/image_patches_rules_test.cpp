// Which convolutions cut images into patches, and the same convolutions with rows of patches as pixels: rules on
// shapes, on any machine.
#include <array>

#include <gtest/gtest.h>

#include "bantam/kernels/conv/conv2d_reference.h"
#include "bantam/kernels/conv/image_patches.h"
#include "bantam/kernels/conv/workspace_rules.h"
#include "tests/kernels/conv/conv2d_shapes.h"

namespace bantam::testing::image_patches_rules_test {
namespace {

namespace cuda = kernels::cuda;

TEST(ImagePatchesRules, AreStemsOfVisionTransformersAndConvNeXt) {
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
    EXPECT_TRUE(cuda::cuts_patches(base(256, 224, 3, 384, 16, 16), dtype));
    EXPECT_TRUE(cuda::cuts_patches(base(64, 224, 3, 96, 4, 4), dtype));
    EXPECT_TRUE(cuda::cuts_patches(base(128, 32, 3, 256, 4, 4), dtype));
    EXPECT_FALSE(cuda::cuts_patches(base(64, 56, 96, 192, 2, 2), dtype)) << "many channels";
    EXPECT_FALSE(cuda::cuts_patches(base(64, 225, 3, 96, 4, 4), dtype)) << "a row's last pixel is in no patch";
    EXPECT_FALSE(cuda::cuts_patches(base(64, 224, 3, 96, 8, 4), dtype)) << "patches overlap";
    EXPECT_FALSE(cuda::cuts_patches(with_padding(base(64, 224, 3, 96, 4, 4), 2, 2, 2, 2), dtype));
    EXPECT_FALSE(cuda::cuts_patches(base(64, 224, 3, 96, 1), dtype)) << "a GEMM without a gather";
  }
  EXPECT_TRUE(cuda::cuts_patches(base(2, 32, 3, 64, 2, 2), DType::float32));
  EXPECT_FALSE(cuda::cuts_patches(base(2, 32, 3, 64, 2, 2), DType::float16)) << "it has an image kernel";
}

TEST(ImagePatchesRules, RowsAsPixelsAreTheSameConvolution) {
  using Product = std::array<std::int64_t, 3>;
  const auto products = [](const Conv2dShape& s) {
    std::vector<Product> all;
    kernels::reference::for_each_product(s, [&](std::int64_t x, std::int64_t w, std::int64_t y) {
      all.push_back({x, w, y});
    });
    return all;
  };
  int tried = 0;
  for (const Conv2dShape& s : shapes()) {
    if (!cuda::cuts_patches(s, DType::float32)) continue;
    const Conv2dShape rows = cuda::with_rows_as_pixels(s);
    EXPECT_EQ(rows.kernel_w, 1);
    EXPECT_EQ(products(rows), products(s));
    ++tried;
  }
  EXPECT_EQ(tried, 3);
}

/// The GEMM of a weight gradient has a long sum and few tiles, which cuBLASLt cuts into parts.
TEST(ImagePatchesRules, GemmsHaveRoomForPartialSums) {
  const Conv2dShape patches = base(256, 224, 3, 384, 16, 16), other = base(256, 224, 3, 384, 8, 4);
  EXPECT_EQ(cuda::conv2d_workspace_rule(patches, DType::float16, Conv2dPass::grad_weight).matmul_bytes, 32u << 20);
  EXPECT_EQ(cuda::conv2d_workspace_rule(other, DType::float16, Conv2dPass::grad_weight).matmul_bytes, 4u << 20);
}

}  // namespace
}  // namespace bantam::testing::image_patches_rules_test
