// Sources give whole, aligned, disjoint ranges, and null (never an exception) where there is no more.
#include "bantam/memory/pages/region_source.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace bantam::region_source_test {
namespace {

std::uintptr_t number(void* address) { return reinterpret_cast<std::uintptr_t>(address); }

TEST(RegionSource, host_memory_is_zeroed_writable_and_page_aligned) {
  for (const auto& source : {make_host_source(), make_pinned_source()}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{5} << 20}) {
      auto* memory = static_cast<unsigned char*>(source->acquire(bytes));
      ASSERT_NE(memory, nullptr) << source->name();
      EXPECT_EQ(number(memory) % 4096, 0u);
      std::memset(memory, 0xa5, bytes);
      EXPECT_EQ(memory[0], 0xa5);
      EXPECT_EQ(memory[bytes - 1], 0xa5);
      source->release(memory, bytes);
    }
  }
}

TEST(RegionSource, too_much_is_null) {
  const auto host = make_host_source();
  EXPECT_EQ(host->acquire(0), nullptr);
  EXPECT_EQ(host->acquire(std::numeric_limits<std::size_t>::max() - 4096), nullptr);
  const auto fake = make_fake_source();
  EXPECT_EQ(fake->acquire(0), nullptr);
  for (std::size_t below = 0; below < 5000; below += 255)
    EXPECT_EQ(fake->acquire(std::numeric_limits<std::size_t>::max() - below), nullptr) << below;
}

TEST(RegionSource, fake_memory_has_a_capacity_and_gives_it_back) {
  const auto source = make_fake_source(10000);
  void* a = source->acquire(6000);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(source->acquire(4001), nullptr);
  void* b = source->acquire(4000);
  ASSERT_NE(b, nullptr);
  EXPECT_GE(number(b), number(a) + 6000);
  EXPECT_EQ(number(a) % 4096, 0u);
  EXPECT_EQ(number(b) % 4096, 0u);
  source->release(a, 6000);
  EXPECT_EQ(source->acquire(6000), a) << "the same requests get the same addresses";
}

TEST(RegionSource, names_say_what_it_is) {
  EXPECT_STREQ(make_host_source()->name(), "host");
  EXPECT_STREQ(make_fake_source()->name(), "fake");
  EXPECT_FALSE(std::string(make_pinned_source()->name()).empty());
}

}  // namespace
}  // namespace bantam::region_source_test
