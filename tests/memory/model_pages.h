// Test support: the paged allocator's promises for one synchronous stream, by full scans over all addresses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/memory/test_pages.h"

namespace bantam::testing {

/// The state of an allocation unit of 256 bytes.
enum class Use : std::uint8_t { unmapped, free, live };

/// A place found by trying every allocation unit: the lowest of those that need the fewest pages.
struct Place {
  std::size_t begin = 0, end = 0;  ///< allocation units
  std::size_t cost = ~std::size_t{0};
  bool found() const { return cost != ~std::size_t{0}; }
};

/// The place for `need` allocation units without live ones; pages for which `costs` is true count.
inline Place cheapest_place(const std::vector<Use>& uses, const std::vector<bool>& costs, std::size_t need) {
  const std::size_t page = uses.size() / costs.size();
  std::vector<std::size_t> before(costs.size() + 1);  // pages that cost before page i
  for (std::size_t i = 0; i < costs.size(); ++i) before[i + 1] = before[i] + (costs[i] ? 1 : 0);
  Place best;
  std::size_t usable = 0;  // allocation units from `begin` on without a live one
  for (std::size_t begin = uses.size(); begin-- > 0;) {
    usable = uses[begin] == Use::live ? 0 : usable + 1;
    if (usable < need) continue;
    const std::size_t cost = before[(begin + need + page - 1) / page] - before[begin / page];
    if (cost <= best.cost) best = {begin, begin + need, cost};
  }
  return best;
}

/// Follows the log of the real source: every call to map must be the one expected here; its answer is then used.
class ModelPages {
 public:
  ModelPages(std::uint64_t limit, bool growth, const FakePages& pages)
      : limit_(limit), growth_(growth), pages_(pages), base_(make_paged_fake_source(pages)->addresses().begin) {
    chunks_.push_back({0, pages.address_bytes / 256, Use::unmapped});
  }

  /// The expected address, 0 for OutOfMemory.
  std::uintptr_t allocate(std::size_t bytes, const PageLog& log) {
    if (bytes > std::numeric_limits<std::size_t>::max() - 255) return 0;
    const std::size_t need = (bytes + 255) / 256;
    std::size_t at = best_fit(need);
    if (at == kNone) {
      bool refused = false;
      if (!grow(need, log, refused) && !release_and_grow(need, log, refused)) return 0;
      at = best_fit(need);
    }
    const std::size_t begin = chunks_[at].begin;
    set(begin, begin + need, Use::live);
    in_use_ += need * 256;
    return base_ + begin * 256;
  }
  void free(std::uintptr_t address) {
    const Chunk chunk = chunks_[chunk_at((address - base_) / 256)];
    in_use_ -= (chunk.end - chunk.begin) * 256;
    set(chunk.begin, chunk.end, Use::free);
  }
  std::uint64_t trim(const PageLog&) { return release(0, {}); }
  /// False where pages with live memory forbid it.
  bool set_limit(std::uint64_t limit, const PageLog&) {
    if (limit != 0 && pool_ > limit) {
      const std::vector<bool> idle = idle_pages();
      const auto count = static_cast<std::uint64_t>(std::count(idle.begin(), idle.end(), true));
      if (pool_ - count * pages_.page_bytes > limit) return false;
      release(limit, {});
    }
    limit_ = limit;
    return true;
  }
  std::uint64_t pool() const { return pool_; }
  std::uint64_t in_use() const { return in_use_; }
  std::size_t largest_free() const {
    std::size_t largest = 0;
    for (const Chunk& chunk : chunks_)
      if (chunk.use == Use::free) largest = std::max(largest, (chunk.end - chunk.begin) * 256);
    return largest;
  }
  void expect_all_calls_seen(const PageLog& log) const {
    EXPECT_EQ(seen_, log.maps.size());
    std::vector<bool> mapped = pages_of(Use::unmapped);
    mapped.flip();
    EXPECT_TRUE(mapped == log.mapped) << "other pages are mapped than should be";
  }

 private:
  struct Chunk {
    std::size_t begin, end;  // allocation units
    Use use;
  };
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t units() const { return pages_.page_bytes / 256; }

  std::size_t chunk_at(std::size_t unit) const {
    const auto after = std::upper_bound(chunks_.begin(), chunks_.end(), unit,
                                        [](std::size_t g, const Chunk& chunk) { return g < chunk.begin; });
    return static_cast<std::size_t>(after - chunks_.begin()) - 1;
  }
  std::size_t best_fit(std::size_t need) const {
    std::size_t best = kNone;
    const auto size = [&](std::size_t i) { return chunks_[i].end - chunks_[i].begin; };
    for (std::size_t i = 0; i < chunks_.size(); ++i)
      if (chunks_[i].use == Use::free && size(i) >= need && (best == kNone || size(i) < size(best))) best = i;
    return best;
  }
  // Makes [begin, end) one use, and joins free and unmapped neighbours.
  void set(std::size_t begin, std::size_t end, Use use) {
    std::vector<Chunk> next;
    const auto add = [&](Chunk chunk) {
      if (chunk.begin >= chunk.end) return;
      if (!next.empty() && next.back().use == chunk.use && chunk.use != Use::live)
        next.back().end = chunk.end;
      else
        next.push_back(chunk);
    };
    const std::size_t from = chunk_at(begin), to = chunk_at(end - 1);
    const std::size_t first = from > 0 ? from - 1 : 0, last = std::min(to + 1, chunks_.size() - 1);
    for (std::size_t i = first; i <= last; ++i) {
      const Chunk& chunk = chunks_[i];
      add({chunk.begin, std::min(chunk.end, std::max(begin, chunk.begin)), chunk.use});
      if (i == from) add({begin, end, use});
      add({std::max(chunk.begin, std::min(end, chunk.end)), chunk.end, chunk.use});
    }
    const auto at = chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(first),
                                  chunks_.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    chunks_.insert(at, next.begin(), next.end());
  }
  std::vector<Use> uses() const {
    std::vector<Use> all(chunks_.back().end);
    for (const Chunk& chunk : chunks_)
      std::fill(all.begin() + static_cast<std::ptrdiff_t>(chunk.begin),
                all.begin() + static_cast<std::ptrdiff_t>(chunk.end), chunk.use);
    return all;
  }
  // Pages that are wholly of one use.
  std::vector<bool> pages_of(Use use) const {
    std::vector<bool> pages(chunks_.back().end / units());
    for (const Chunk& chunk : chunks_)
      if (chunk.use == use)
        for (std::size_t p = (chunk.begin + units() - 1) / units(); (p + 1) * units() <= chunk.end; ++p)
          pages[p] = true;
    return pages;
  }
  std::vector<bool> idle_pages() const { return pages_of(Use::free); }
  std::uint64_t limit() const { return limit_ == 0 ? ~std::uint64_t{0} : limit_; }

  bool grow(std::size_t need, const PageLog& log, bool& refused) {
    const std::vector<bool> unmapped = pages_of(Use::unmapped);
    const Place place = cheapest_place(uses(), unmapped, need);
    if (!place.found() || place.cost > (limit() - pool_) / pages_.page_bytes) return false;
    const std::size_t first = place.begin / units(), end = (place.end + units() - 1) / units();
    const std::size_t step = std::max(pages_.growth_bytes, pages_.page_bytes) / pages_.page_bytes;
    std::uint64_t left = (limit() - pool_) / pages_.page_bytes - place.cost;
    std::size_t wider = end;
    if (!unmapped[end - 1]) left = 0;
    while (wider < unmapped.size() && unmapped[wider] && left > 0 && (!growth_ || wider % step != 0)) ++wider, --left;
    if (map(first, wider, log, refused)) return true;
    return growth_ && wider > end && map(first, end, log, refused);
  }
  bool release_and_grow(std::size_t need, const PageLog& log, bool& refused) {
    if (refused && !growth_) return false;
    const std::vector<bool> idle = idle_pages(), unmapped = pages_of(Use::unmapped);
    std::vector<bool> costs(idle.size());
    for (std::size_t p = 0; p < costs.size(); ++p) costs[p] = idle[p] || unmapped[p];
    const Place place = cheapest_place(uses(), costs, need);
    const auto idle_count = static_cast<std::uint64_t>(std::count(idle.begin(), idle.end(), true));
    if (!place.found() || place.cost > (limit() - (pool_ - idle_count * pages_.page_bytes)) / pages_.page_bytes)
      return false;
    const std::size_t first = place.begin / units(), end = (place.end + units() - 1) / units();
    std::vector<bool> keep(idle.size());
    std::uint64_t missing = 0;
    for (std::size_t p = first; p < end; ++p) {
      keep[p] = true;
      missing += unmapped[p] ? pages_.page_bytes : 0;
    }
    release(refused ? 0 : limit() / pages_.page_bytes * pages_.page_bytes - missing, keep);
    return map(first, end, log, refused);
  }
  // Maps what is unmapped of pages [first, end), hole by hole; all or nothing.
  bool map(std::size_t first, std::size_t end, const PageLog& log, bool& refused) {
    const std::vector<bool> unmapped = pages_of(Use::unmapped);
    std::vector<std::pair<std::size_t, std::size_t>> done;
    refused = false;
    for (std::size_t p = first; p < end;) {
      std::size_t q = p;
      while (q < end && unmapped[q]) ++q;
      if (q > p && !next_map(p, q, log)) {
        refused = true;
        return false;
      }
      if (q > p) done.emplace_back(p, q);
      p = std::max(q, p + 1);
    }
    for (const auto& [p, q] : done) {
      set(p * units(), q * units(), Use::free);
      pool_ += (q - p) * pages_.page_bytes;
    }
    return true;
  }
  bool next_map(std::size_t first, std::size_t end, const PageLog& log) {
    if (seen_ >= log.maps.size()) {
      ADD_FAILURE() << "the source was not asked for pages " << first << " to " << end;
      return false;
    }
    const MapCall& call = log.maps[seen_++];
    EXPECT_EQ(call.pages.begin, base_ + first * pages_.page_bytes);
    EXPECT_EQ(call.pages.bytes, (end - first) * pages_.page_bytes);
    return call.done;
  }
  // Unmaps idle pages, the highest first, until the pool is at most `pool`.
  std::uint64_t release(std::uint64_t pool, const std::vector<bool>& keep) {
    const std::vector<bool> idle = idle_pages();
    const std::uint64_t before = pool_;
    for (std::size_t p = idle.size(); p-- > 0 && pool_ > pool;) {
      if (!idle[p] || (!keep.empty() && keep[p])) continue;
      set(p * units(), (p + 1) * units(), Use::unmapped);
      pool_ -= pages_.page_bytes;
    }
    return before - pool_;
  }

  std::uint64_t limit_;
  bool growth_;
  FakePages pages_;
  std::uintptr_t base_;
  std::vector<Chunk> chunks_;  // by address, all of the reserved range
  std::uint64_t pool_ = 0, in_use_ = 0;
  std::size_t seen_ = 0;
};

}  // namespace bantam::testing
