// Categories have names, sums add up, and fragmentation is what its formula says.
#include "bantam/memory/allocator/accounting.h"

#include <set>

#include <gtest/gtest.h>

namespace bantam::accounting_test {
namespace {

TEST(Accounting, every_category_has_its_own_name) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kCategories; ++i) names.insert(to_string(static_cast<Category>(i)));
  EXPECT_EQ(names.size(), kCategories);
  EXPECT_EQ(to_string(Category::parameter), "parameter");
  EXPECT_EQ(to_string(Category::other), "other");
  EXPECT_EQ(to_string(static_cast<Category>(99)), "?");
}

TEST(Accounting, totals_add_all_categories) {
  CategoryBytes bytes;
  bytes[Category::parameter] = 3;
  bytes[Category::other] = 40;
  bytes[Category::activation] += 500;
  EXPECT_EQ(bytes.total(), 543u);
}

TEST(Accounting, fragmentation_is_the_share_of_free_bytes_outside_the_largest_chunk) {
  MemoryStats stats;
  EXPECT_EQ(stats.fragmentation(), 0.0);
  stats.pool_bytes = 1000;
  stats.in_use_bytes = 600;
  stats.largest_free_bytes = 100;
  EXPECT_DOUBLE_EQ(stats.fragmentation(), 0.75);
}

}  // namespace
}  // namespace bantam::accounting_test
