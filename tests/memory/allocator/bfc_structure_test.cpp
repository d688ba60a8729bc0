// The parts below the allocator, each against a simple standard container.
#include "bantam/memory/allocator/bfc_structure.h"

#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace bantam::bfc_structure_test {
namespace {

TEST(AddressMap, agrees_with_a_standard_map) {
  AddressMap map;
  std::map<std::uintptr_t, ChunkId> expected;
  std::vector<std::uintptr_t> addresses;  // by chunk
  const auto address_of = [&addresses](ChunkId chunk) { return addresses[chunk]; };
  std::mt19937 random(7);
  for (int step = 0; step < 200000; ++step) {
    // Few distinct addresses, so that the same ones come and go, in long runs of neighbours.
    const std::uintptr_t address = (std::uintptr_t{1} << 44) + 256 * (random() % 3000);
    const auto found = expected.find(address);
    addresses.push_back(address);
    ASSERT_EQ(map.find(address, address_of), found == expected.end() ? kNoChunk : found->second);
    if (found != expected.end()) {
      map.erase(address, found->second, address_of);
      expected.erase(found);
    } else {
      map.reserve(map.size() + 1, address_of);
      map.insert(address, static_cast<ChunkId>(step));
      expected[address] = static_cast<ChunkId>(step);
    }
    ASSERT_EQ(map.size(), expected.size());
  }
  for (const auto& [address, chunk] : expected) EXPECT_EQ(map.find(address, address_of), chunk);
  EXPECT_EQ(map.find(0, address_of), kNoChunk);
}

TEST(FreeBins, bins_cover_all_sizes_in_their_order) {
  EXPECT_EQ(FreeBins::bin_of(256), 0);
  EXPECT_EQ(FreeBins::bin_of(512), FreeBins::kSteps);
  EXPECT_EQ(FreeBins::bin_of(std::size_t{64} << 30), FreeBins::kBins - 1);
  EXPECT_EQ(FreeBins::bin_of(~std::size_t{255}), FreeBins::kBins - 1);
  int before = 0;
  for (std::size_t units = 1; units < 200000; ++units) {
    const int bin = FreeBins::bin_of(units * 256);
    ASSERT_GE(bin, before) << units;
    before = bin;
  }
  for (int shift = 8; shift < 64; ++shift)
    for (const std::size_t size : {(std::size_t{1} << shift) - 256, std::size_t{1} << shift})
      if (size != 0) {
        EXPECT_TRUE(FreeBins::bin_of(size) >= 0 && FreeBins::bin_of(size) < FreeBins::kBins) << size;
      }
}

TEST(FreeBins, best_fit_and_largest_agree_with_an_ordered_set) {
  FreeBins bins;
  std::vector<Chunk> chunks;
  std::set<std::pair<std::size_t, std::uintptr_t>> expected;
  std::mt19937_64 random(11);
  std::map<std::uintptr_t, ChunkId> ids;
  for (int step = 0; step < 100000; ++step) {
    const std::size_t size = 256 * (1 + (random() % 64 << random() % 18));
    if (random() % 2 == 0 || expected.empty()) {
      Chunk chunk;
      chunk.size = size;
      chunk.address = (static_cast<std::uintptr_t>(step) + 1) * 256;
      chunks.push_back(chunk);
      ids[chunk.address] = static_cast<ChunkId>(chunks.size() - 1);
      bins.insert(chunks, ids[chunk.address]);
      expected.insert({size, chunk.address});
    } else {
      auto victim = expected.lower_bound({size, 0});
      if (victim == expected.end()) --victim;
      bins.erase(chunks, ids[victim->second]);
      expected.erase(victim);
    }
    const std::size_t wanted = 256 * (1 + (random() % 64 << random() % 18));
    const auto fit = expected.lower_bound({wanted, 0});
    ASSERT_EQ(bins.best_fit(chunks, wanted), fit == expected.end() ? kNoChunk : ids[fit->second]);
    ASSERT_EQ(bins.largest(chunks), expected.empty() ? kNoChunk : ids[expected.rbegin()->second]);
  }
}

// A checker that finds nothing wrong proves nothing until it is seen to find something.
TEST(BfcStructure, chunks_of_different_states_stay_apart_until_settled) {
  BfcStructure structure;
  structure.reserve_states(3);
  structure.reserve();
  structure.add_region(1 << 20, 4096);
  std::vector<ChunkId> live;
  for (int i = 0; i < 4; ++i) {
    structure.reserve();
    live.push_back(structure.best_fit(1024, kIdle));
    structure.allocate(live.back(), 1024, 1000, {});
  }
  structure.release(live[0], 1, 1);
  structure.release(live[1], 1, 2);
  structure.release(live[2], 2, 1);
  EXPECT_EQ(structure.check(), "");
  EXPECT_EQ(structure.free_chunks(), 2u);
  EXPECT_EQ(structure.best_fit(1024, kIdle), kNoChunk);
  EXPECT_EQ(structure.chunk(structure.best_fit(1024, 1)).size, 2048u);
  EXPECT_EQ(structure.best_run(3072, [](const Chunk&) { return true; }).bytes, 3072u);
  EXPECT_EQ(structure.best_run(3072, [](const Chunk& c) { return c.state == 1; }).first, kNoChunk);
  structure.settle(1, 1);  // merged chunks take the newest ticket
  EXPECT_EQ(structure.best_fit(1024, kIdle), kNoChunk);
  structure.settle(1, 2);
  structure.settle(2, 1);
  EXPECT_EQ(structure.check(), "");
  EXPECT_EQ(structure.largest_free(), 3072u);
  EXPECT_EQ(structure.bytes_without_live(), 0u);
  structure.release(live[3], kIdle, 0);
  EXPECT_EQ(structure.bytes_without_live(), 4096u);
  EXPECT_TRUE(structure.is_idle(structure.regions().front()));
  EXPECT_EQ(structure.check(), "");
}

TEST(BfcStructure, runs_of_one_stream_are_found_from_its_own_chunks_alone) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    BfcStructure structure;
    structure.reserve_states(3);
    structure.reserve();
    structure.add_region(1u << 20, 64 * 256);
    std::vector<ChunkId> live;
    while (structure.largest_free() > 0) {
      structure.reserve();
      const std::size_t bytes = std::min<std::size_t>((1 + random() % 3) * 256, structure.largest_free());
      live.push_back(structure.best_fit(bytes, kIdle));
      structure.allocate(live.back(), bytes, bytes, {});
    }
    std::uint64_t ticket = 0;
    for (const ChunkId id : live)
      if (random() % 4 != 0) structure.release(id, random() % 3, ++ticket);
    ASSERT_EQ(structure.check(), "");
    for (std::size_t bytes = 256; bytes <= 64 * 256; bytes += 256) {
      if (structure.best_fit(bytes, 1) != kNoChunk) continue;
      const auto all = structure.best_run(bytes, [](const Chunk& c) { return c.state == kIdle || c.state == 1; });
      const auto own = structure.best_run_of(bytes, 1);
      ASSERT_EQ(own.first, all.first) << bytes;
      ASSERT_EQ(own.last, all.last);
      ASSERT_EQ(own.bytes, all.bytes);
    }
  }
}

TEST(BfcStructure, fusing_a_run_takes_all_of_it_and_nothing_more) {
  BfcStructure structure;
  structure.reserve_states(3);
  structure.reserve();
  structure.add_region(1 << 20, 5 * 256);
  std::vector<ChunkId> live;
  for (int i = 0; i < 5; ++i) {
    structure.reserve();
    live.push_back(structure.best_fit(256, kIdle));
    structure.allocate(live.back(), 256, 1, {});
  }
  structure.release(live[1], 2, 1);
  structure.release(live[2], kIdle, 0);
  structure.release(live[3], 1, 1);
  const auto run = structure.best_run(700, [](const Chunk&) { return true; });
  EXPECT_EQ(run.bytes, 768u);
  const ChunkId fused = structure.fuse(run, 1, 2);
  EXPECT_EQ(structure.chunk(fused).size, 768u);
  EXPECT_EQ(structure.chunk(fused).state, 1u);
  EXPECT_EQ(structure.free_chunks(), 1u);
  EXPECT_FALSE(structure.has_deferred(2));
  EXPECT_EQ(structure.check(), "");
}

TEST(BfcStructure, regions_of_pages_grow_join_and_come_apart) {
  constexpr std::size_t kPage = 1024;
  constexpr std::uintptr_t kBase = 1 << 20;
  BfcStructure structure;
  const auto regions = [&] {
    EXPECT_EQ(structure.check(), "");
    std::vector<std::pair<std::size_t, std::size_t>> pages;
    for (const auto& region : structure.regions())
      pages.emplace_back((region.address - kBase) / kPage, region.size / kPage);
    return pages;
  };
  using Pages = std::vector<std::pair<std::size_t, std::size_t>>;
  structure.reserve(10);
  structure.add_pages(kBase + 8 * kPage, 2 * kPage);
  structure.add_pages(kBase + 2 * kPage, 2 * kPage);
  EXPECT_EQ(regions(), (Pages{{2, 2}, {8, 2}})) << "by address";
  structure.add_pages(kBase + 4 * kPage, kPage);  // at the end of the first
  structure.add_pages(kBase + 7 * kPage, kPage);  // before the second
  EXPECT_EQ(regions(), (Pages{{2, 3}, {7, 3}}));
  structure.add_pages(kBase + 5 * kPage, 2 * kPage);
  EXPECT_EQ(regions(), (Pages{{2, 8}}));
  EXPECT_EQ(structure.free_chunks(), 1u);

  structure.reserve(10);
  const ChunkId live = structure.best_fit(kPage, kIdle);
  structure.allocate(live, kPage + 256, kPage + 256, {});
  const ChunkId rest = structure.best_fit(kPage, kIdle);
  structure.remove_pages(rest, kBase + 5 * kPage, 2 * kPage);  // out of the middle: a head and a tail stay
  EXPECT_EQ(regions(), (Pages{{2, 3}, {7, 3}}));
  EXPECT_EQ(structure.largest_free(), 3 * kPage);
  structure.remove_pages(structure.best_fit(3 * kPage, kIdle), kBase + 7 * kPage, 3 * kPage);  // a whole region
  EXPECT_EQ(regions(), (Pages{{2, 3}}));
  structure.remove_pages(rest, kBase + 4 * kPage, kPage);  // the end of a region
  EXPECT_EQ(regions(), (Pages{{2, 2}}));
  structure.release(live, kIdle, 0);
  structure.remove_pages(structure.best_fit(256, kIdle), kBase + 2 * kPage, kPage);  // the start of one
  EXPECT_EQ(regions(), (Pages{{3, 1}}));
}

TEST(BfcStructure, the_check_notices_a_misused_structure) {
  BfcStructure structure;
  structure.reserve_states(2);
  structure.reserve();
  structure.add_region(1 << 20, 1024);
  structure.allocate(structure.best_fit(512, kIdle), 512, 100, {});  // 412 bytes of waste: more than rounding explains
  EXPECT_NE(structure.check(), "");
}

}  // namespace
}  // namespace bantam::bfc_structure_test
