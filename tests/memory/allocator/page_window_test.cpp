// The cheapest window, by hand and against every window there is.
#include "bantam/memory/allocator/page_window.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace bantam::page_window_test {
namespace {

constexpr std::size_t kPage = 4096;

TEST(PageWindow, uses_what_is_there_and_fills_up_with_whole_pages) {
  const std::vector<PageSegment> run = {{10 * kPage + 1000, 3 * kPage - 1000, false}, {13 * kPage, 100 * kPage, true}};
  const PageWindow window = cheapest_window(run, 5 * kPage, kPage);
  EXPECT_EQ(window.begin, 10 * kPage + 1000);
  EXPECT_EQ(window.end, 16 * kPage);
  EXPECT_EQ(window.cost_bytes, 3 * kPage);
  EXPECT_FALSE(cheapest_window(run, 104 * kPage, kPage).found());
  EXPECT_FALSE(cheapest_window({}, 1, kPage).found());
}

TEST(PageWindow, of_equals_the_lowest_is_taken) {
  const std::vector<PageSegment> run = {
      {0x10000, 4 * kPage, true}, {0x14000, kPage, false}, {0x15000, 4 * kPage, true}};
  const PageWindow window = cheapest_window(run, 3 * kPage, kPage);
  EXPECT_EQ(window.cost_bytes, 2 * kPage);
  EXPECT_EQ(window.begin, 0x12000u);
}

TEST(PageWindow, agrees_with_trying_every_unit) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    // Segments that cost lie on pages; between two of them any that do not.
    std::vector<PageSegment> run;
    std::uintptr_t at = 64 * kPage;
    bool costs = random() % 2 == 0;
    for (unsigned i = 0, count = 1 + random() % 6; i < count; ++i, costs = !costs) {
      std::size_t bytes = (1 + random() % 5) * kPage;
      if (!costs && run.empty()) {
        const std::size_t missing = random() % 16 * 256;  // a run may begin within a page
        run.push_back({at + missing, bytes - missing, false});
      } else {
        run.push_back({at, bytes, costs});
      }
      at += bytes;
    }
    const std::size_t need = (1 + random() % 200) * 256;
    std::size_t cheapest = ~std::size_t{0};
    std::uintptr_t lowest = 0;
    for (std::uintptr_t begin = run.front().begin; begin + need <= at; begin += 256) {
      std::size_t cost = 0;
      for (std::uintptr_t page = begin / kPage * kPage; page < begin + need; page += kPage)
        for (const PageSegment& segment : run)
          if (segment.costs && segment.begin <= page && page < segment.begin + segment.bytes) cost += kPage;
      if (cost < cheapest) cheapest = cost, lowest = begin;
    }
    const PageWindow window = cheapest_window(run, need, kPage);
    ASSERT_EQ(window.found(), lowest != 0);
    if (!window.found()) continue;
    ASSERT_EQ(window.cost_bytes, cheapest);
    ASSERT_EQ(window.begin, lowest);
    ASSERT_GE(window.end - window.begin, need);
  }
}

}  // namespace
}  // namespace bantam::page_window_test
