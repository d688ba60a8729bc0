// Test support: the allocator's promises for one synchronous stream, written in the plainest way: lists and full scans.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/memory/test_source.h"

namespace bantam::testing {

/// Follows the log of the real source: every call must be the one expected here; its answer (address or failure) is
/// then used.
class ModelAllocator {
 public:
  struct Chunk {
    std::uintptr_t address;
    std::size_t size;
    bool live;
  };

  ModelAllocator(std::uint64_t limit, bool growth, std::size_t first)
      : limit_(limit), growth_(growth), first_(first), next_(first) {}

  /// The expected address, 0 for OutOfMemory.
  std::uintptr_t allocate(std::size_t bytes, const SourceLog& log) {
    if (bytes > std::numeric_limits<std::size_t>::max() - 255) return 0;
    const std::size_t need = (bytes + 255) / 256 * 256;
    if (Chunk* best = best_fit(need)) return take(best, need);
    if (!extend(need, log)) {
      std::uint64_t idle = 0;
      for (const auto& region : regions_) idle += whole(region) ? region.front().size : 0;
      if (idle == 0 || (limit_ != 0 && need > limit_ - (pool_ - idle)) ||
          (limit_ == 0 && need > std::numeric_limits<std::size_t>::max() - (pool_ - idle)))
        return 0;
      release_idle(log);
      if (!extend(need, log)) return 0;
    }
    return take(best_fit(need), need);
  }
  void free(std::uintptr_t address) {
    for (auto& region : regions_) {
      for (std::size_t i = 0; i < region.size(); ++i) {
        if (region[i].address != address) continue;
        in_use_ -= region[i].size;
        region[i].live = false;
        if (i + 1 < region.size() && !region[i + 1].live) join(region, i);
        if (i > 0 && !region[i - 1].live) join(region, i - 1);
        return;
      }
    }
    ADD_FAILURE() << "the model does not know " << address;
  }
  std::uint64_t trim(const SourceLog& log) {
    const std::uint64_t before = pool_;
    release_idle(log);
    return before - pool_;
  }
  /// False where live regions forbid it.
  bool set_limit(std::uint64_t limit, const SourceLog& log) {
    if (limit != 0 && limit < pool_) {
      std::uint64_t reserved = 0;
      for (const auto& region : regions_)
        if (!whole(region))
          for (const Chunk& chunk : region) reserved += chunk.size;
      if (reserved > limit) return false;
      release_down_to(limit, log);
    }
    limit_ = limit;
    return true;
  }
  std::uint64_t pool() const { return pool_; }
  std::uint64_t in_use() const { return in_use_; }
  std::size_t largest_free() const {
    std::size_t largest = 0;
    for (const auto& region : regions_)
      for (const Chunk& chunk : region) largest = std::max(largest, chunk.live ? 0 : chunk.size);
    return largest;
  }
  void expect_all_calls_seen(const SourceLog& log) const { EXPECT_EQ(seen_, log.calls.size()); }

 private:
  using Chunks = std::vector<Chunk>;
  static bool whole(const Chunks& region) { return region.size() == 1 && !region.front().live; }
  static void join(Chunks& region, std::size_t i) {
    region[i].size += region[i + 1].size;
    region.erase(region.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  Chunk* best_fit(std::size_t need) {
    Chunk* best = nullptr;
    for (auto& region : regions_)
      for (Chunk& chunk : region)
        if (!chunk.live && chunk.size >= need &&
            (best == nullptr || chunk.size < best->size || (chunk.size == best->size && chunk.address < best->address)))
          best = &chunk;
    return best;
  }
  std::uintptr_t take(Chunk* best, std::size_t need) {
    in_use_ += need;
    const std::uintptr_t address = best->address;
    for (auto& region : regions_) {
      for (std::size_t i = 0; i < region.size(); ++i) {
        if (&region[i] != best) continue;
        const std::size_t rest = region[i].size - need;
        region[i] = {address, need, true};
        if (rest > 0) region.insert(region.begin() + static_cast<std::ptrdiff_t>(i) + 1, {address + need, rest, false});
        return address;
      }
    }
    return 0;
  }
  bool extend(std::size_t need, const SourceLog& log) {
    const std::size_t most = limit_ == 0 ? std::numeric_limits<std::size_t>::max() / 256 * 256 - pool_
                                         : static_cast<std::size_t>((limit_ - pool_) / 256 * 256);
    if (need > most) return false;
    std::size_t size = growth_ ? std::min(std::max(next_, need), most) : most;
    const std::size_t least = growth_ ? need : size;
    for (;;) {
      const SourceCall call = next_call(log, false, size);
      if (call.address != 0) {
        regions_.push_back({{call.address, size, false}});
        pool_ += size;
        if (next_ <= std::numeric_limits<std::size_t>::max() / 4) next_ *= 2;
        return true;
      }
      if (size == least) return false;
      size = std::max(least, size / 10 * 9 / 256 * 256);
    }
  }
  void release_idle(const SourceLog& log) {
    const std::uint64_t before = pool_;
    for (std::size_t i = regions_.size(); i-- > 0;)
      if (whole(regions_[i])) release(i, log);
    grow_from_what_is_left(before);
  }
  // One that is enough: the smallest of those; else the largest, and again. Of equals the latest.
  void release_down_to(std::uint64_t pool, const SourceLog& log) {
    const std::uint64_t before = pool_;
    while (pool_ > pool) {
      std::size_t enough = regions_.size(), largest = regions_.size();
      for (std::size_t i = 0; i < regions_.size(); ++i) {
        const std::size_t size = regions_[i].front().size;
        if (!whole(regions_[i])) continue;
        if (largest == regions_.size() || size >= regions_[largest].front().size) largest = i;
        if (size >= pool_ - pool && (enough == regions_.size() || size <= regions_[enough].front().size)) enough = i;
      }
      release(enough != regions_.size() ? enough : largest, log);
    }
    grow_from_what_is_left(before);
  }
  void release(std::size_t i, const SourceLog& log) {
    const SourceCall call = next_call(log, true, regions_[i].front().size);
    EXPECT_EQ(call.address, regions_[i].front().address);
    pool_ -= regions_[i].front().size;
    regions_.erase(regions_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void grow_from_what_is_left(std::uint64_t before) {
    std::size_t largest = 0;
    for (const auto& region : regions_) {
      std::size_t size = 0;
      for (const Chunk& chunk : region) size += chunk.size;
      largest = std::max(largest, size);
    }
    if (pool_ != before) next_ = std::min(next_, std::max(first_, 2 * largest));
  }
  SourceCall next_call(const SourceLog& log, bool release, std::size_t bytes) {
    if (seen_ >= log.calls.size()) {
      ADD_FAILURE() << "the source was not asked for " << bytes;
      return {};
    }
    const SourceCall call = log.calls[seen_++];
    EXPECT_EQ(call.release, release);
    EXPECT_EQ(call.bytes, bytes);
    return call;
  }

  std::uint64_t limit_;
  bool growth_;
  std::size_t first_, next_;
  std::vector<Chunks> regions_;
  std::uint64_t pool_ = 0, in_use_ = 0;
  std::size_t seen_ = 0;
};

}  // namespace bantam::testing
