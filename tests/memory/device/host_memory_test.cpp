#include "bantam/memory/device/host_memory.h"

#include <string>

#include <gtest/gtest.h>

namespace bantam::host_memory_test {
namespace {

TEST(HostMemory, APlanIsRefusedForWhatTheHostLeaves) {
  const HostInfo host{.total_bytes = 60 << 20, .free_bytes = 40 << 20, .swap_bytes = 8 << 20, .bound = "/group/limit"};
  EXPECT_FALSE(refused_by_host(host, 48 << 20));
  const auto refused = refused_by_host(host, (48 << 20) + 1);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->facts().requested_bytes, (48u << 20) + 1);
  EXPECT_EQ(refused->facts().limit_bytes, 48u << 20);
  EXPECT_NE(std::string(refused->what()).find("/group/limit"), std::string::npos) << refused->what();
  EXPECT_FALSE(refused_by_host(host, 40 << 20, 8 << 20));
  const auto with_save = refused_by_host(host, (40 << 20) + 1, 8 << 20);
  ASSERT_TRUE(with_save) << "what is needed beside the pool counts";
  EXPECT_EQ(with_save->facts().limit_bytes, 40u << 20);
  EXPECT_TRUE(refused_by_host(host, 1, 64 << 20)) << "more beside the pool than there is";
  EXPECT_FALSE(refused_by_host(HostInfo{}, std::uint64_t{1} << 60)) << "nothing is known";
}

}  // namespace
}  // namespace bantam::host_memory_test
