// The separable block's pure functions of shape: codes, and a workspace that does for every device.
#include <set>

#include <gtest/gtest.h>

#include "bantam/kernels/separable/separable_backward_tiles.h"
#include "bantam/kernels/separable/separable_block.h"

namespace bantam::kernels::separable_block_sizes_test {
namespace {

using S = SeparableBlockShape;

TEST(SeparableBlockSizesTest, Codes) {
  S s{.batch = 2, .in_h = 9, .in_w = 8, .in_channels = 8, .out_channels = 16, .pool = 2};  // 7x6 sums, 3x3 outputs
  EXPECT_EQ(s.y_elements(), 2 * 9 * 16);
  EXPECT_EQ(separable_block_code_bytes(s), 2 * 9 * 16 / 2);
  s.pool = 1;
  EXPECT_EQ(separable_block_code_bytes(s), 2 * 42 * 16 / 8);
  s.relu = false;
  EXPECT_EQ(separable_block_code_bytes(s), 0);
}

// Tiles depend on how much shared memory a block may have (7.5: 64 KiB, 8.6: 99, 8.0: 163, 9.0: 227), workspaces do
// not.
TEST(SeparableBlockSizesTest, TheWorkspaceHoldsThePartsOfEveryDevice) {
  std::int64_t shapes = 0, differ = 0;
  for (const DType dtype : {DType::float32, DType::float16})
    for (const std::int64_t batch : {1, 8, 16, 33, 128})
      for (const std::int64_t edge : {7, 16, 28, 31, 64})
        for (const std::int64_t in : {8, 24, 32, 48, 64})
          for (const std::int64_t out : {16, 32, 64}) {
            const S s{.batch = batch, .in_h = edge, .in_w = edge, .in_channels = in, .out_channels = out};
            if (!separable_backward_fits(s, dtype)) continue;
            ++shapes;
            const auto bytes_of_part = static_cast<std::size_t>(separable_gradient_elements(s)) * sizeof(float);
            const std::size_t parts = separable_backward_workspace_bytes(s, dtype) / bytes_of_part;
            std::set<std::int64_t> counts;
            for (const std::int64_t kib : {64, 96, 99, 112, 113, 163, 227}) {
              counts.insert(separable_backward_tiles(s, dtype, kib * 1024).gradient_parts());
              ASSERT_LE(static_cast<std::size_t>(*counts.rbegin()), parts)
                  << kib << " KiB, batch " << batch << ", " << edge << "², " << in << " to " << out;
            }
            differ += counts.size() > 1 ? 1 : 0;
          }
  EXPECT_GT(shapes, 400);
  EXPECT_GT(differ, 20) << "tiles do depend on it";
}

}  // namespace
}  // namespace bantam::kernels::separable_block_sizes_test
