// Pages: windows for growth, release of idle pages as far as needed, never above the limit.
#include "bantam/memory/allocator/page_supply.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/region_supply.h"

namespace bantam {
namespace {

std::uintptr_t page_floor(std::uintptr_t address, std::size_t page) { return address & ~(std::uintptr_t{page} - 1); }
std::uintptr_t page_ceil(std::uintptr_t address, std::size_t page) { return page_floor(address + page - 1, page); }

// The whole pages inside of a range.
AddressRange inner_pages(std::uintptr_t begin, std::size_t bytes, std::size_t page) {
  const std::uintptr_t first = page_ceil(begin, page);
  const std::uintptr_t end = page_floor(begin + bytes, page);
  return {first, end > first ? end - first : 0};
}

enum class RangeKind { unmapped, free, idle };  // idle: free, and its whole pages could be released

/// Receives the ranges of a run, by address, and finds the best window of all runs.
class WindowSearch {
 public:
  WindowSearch(std::size_t bytes, std::size_t page) : bytes_(bytes), page_(page) {}

  void add(std::uintptr_t begin, std::size_t bytes, RangeKind kind) {
    if (bytes == 0) return;
    run_bytes_ += bytes;
    if (!run_.empty() && run_.back().kind == kind)  // pages that two idle neighbours share are idle too
      run_.back().bytes += bytes;
    else
      run_.push_back({begin, bytes, kind});
  }
  void end_run() {
    if (run_bytes_ >= bytes_) {
      segments_.clear();
      for (const Range& range : run_) append(range);
      best_ = better_window(best_, cheapest_window(segments_, bytes_, page_));
    }
    run_.clear();
    run_bytes_ = 0;
  }
  PageWindow best() const { return best_; }

 private:
  struct Range {
    std::uintptr_t begin;
    std::size_t bytes;
    RangeKind kind;
  };
  void append(const Range& range) {
    const AddressRange pages =
        range.kind == RangeKind::idle ? inner_pages(range.begin, range.bytes, page_) : AddressRange{};
    if (pages.bytes == 0) {
      segments_.push_back({range.begin, range.bytes, range.kind == RangeKind::unmapped});
      return;
    }
    const std::uintptr_t end = range.begin + range.bytes;
    if (range.begin != pages.begin) segments_.push_back({range.begin, pages.begin - range.begin, false});
    segments_.push_back({pages.begin, pages.bytes, true});
    if (pages.end() != end) segments_.push_back({pages.end(), end - pages.end(), false});
  }

  std::size_t bytes_, page_;
  std::vector<Range> run_;
  std::size_t run_bytes_ = 0;
  std::vector<PageSegment> segments_;
  PageWindow best_;
};

}  // namespace

PageSupply::PageSupply(std::unique_ptr<PagedSource> source, BfcStructure& structure, const AllocatorOptions& options,
                       MemoryStats& counters)
    : Supply(structure, options, counters),
      source_(std::move(source)),
      page_(source_->page_bytes()),
      addresses_(source_->addresses()) {
  if (page_ % BfcAllocator::kAllocationUnit != 0 || addresses_.begin % page_ != 0 || addresses_.bytes % page_ != 0)
    throw Error(fmt::format("{}: the pages of source '{}' are not aligned", options.name, source_->name()));
}

PageSupply::~PageSupply() {
  for (const auto& extent : structure_.regions()) source_->unmap(extent.address, extent.size);
}

// The bytes that the limit allows for new pages.
std::uint64_t PageSupply::room() const { return (limit() - counters_.pool_bytes) / page_ * page_; }

// The window for `bytes` with the fewest pages that are not mapped, among idle memory and that of `own`, neither of
// which holds `bytes` by itself. So it reaches into a range that is not mapped, and only chunks beside those are looked
// at: how many live somewhere else does not matter.
PageWindow PageSupply::cheapest_growth(std::size_t bytes, FreeState own) const {
  if (bytes > addresses_.bytes) return {};
  const auto joins = [&](ChunkId id) {
    const Chunk& chunk = structure_.chunk(id);
    return chunk.kind == ChunkKind::free && (chunk.state == kIdle || chunk.state == own);
  };
  WindowSearch search(bytes, page_);
  const auto add_free = [&](ChunkId id) {
    for (; joins(id); id = structure_.chunk(id).next)
      search.add(structure_.chunk(id).address, structure_.chunk(id).size, RangeKind::free);
    return id;
  };
  std::uintptr_t at = addresses_.begin;
  for (const auto& extent : structure_.regions()) {
    search.add(at, extent.address - at, RangeKind::unmapped);
    at = extent.address + extent.size;
    if (add_free(extent.first) == extent.end) continue;  // the run continues after it
    search.end_run();
    if (search.best().cost_bytes == page_) return search.best();  // by address, and none needs less than a page
    ChunkId last = structure_.chunk(extent.end).prev;
    while (joins(last)) last = structure_.chunk(last).prev;
    (void)add_free(structure_.chunk(last).next);
  }
  search.add(at, addresses_.end() - at, RangeKind::unmapped);
  search.end_run();
  return search.best();
}

// The window for `bytes` with the fewest pages that are not mapped, or idle by `rule`. Walks all chunks. The live chunk
// `also_free` counts as free.
PageWindow PageSupply::cheapest(std::size_t bytes, const Rule& rule, ChunkId also_free) const {
  if (bytes > addresses_.bytes) return {};
  WindowSearch search(bytes, page_);
  std::uintptr_t at = addresses_.begin;
  for (const auto& extent : structure_.regions()) {
    search.add(at, extent.address - at, RangeKind::unmapped);
    for (ChunkId id = extent.first; id != extent.end; id = structure_.chunk(id).next) {
      const Chunk& chunk = structure_.chunk(id);
      const Use use = chunk.kind == ChunkKind::free || id == also_free ? rule(chunk) : Use{};
      if (use.eligible)
        search.add(chunk.address, chunk.size, use.idle ? RangeKind::idle : RangeKind::free);
      else
        search.end_run();
    }
    at = extent.address + extent.size;
  }
  search.add(at, addresses_.end() - at, RangeKind::unmapped);
  search.end_run();
  return search.best();
}

std::vector<AddressRange> PageSupply::unmapped_in(const PageWindow& window) const {
  std::vector<AddressRange> holes;
  std::uintptr_t at = window.begin;
  const auto& extents = structure_.regions();
  auto extent = std::ranges::upper_bound(extents, at, {}, &BfcStructure::Region::address);
  if (extent != extents.begin()) at = std::max(at, std::prev(extent)->address + std::prev(extent)->size);
  for (; extent != extents.end() && extent->address < window.end; ++extent) {
    if (extent->address > at) holes.push_back({at, extent->address - at});
    at = extent->address + extent->size;
  }
  if (at < window.end) holes.push_back({at, window.end - at});
  return holes;
}

// Maps what is not mapped in the window: all or nothing. The limit has room for it.
bool PageSupply::map_window(const PageWindow& window, bool& source_refused) {
  const std::vector<AddressRange> holes = unmapped_in(window);
  structure_.reserve(holes.size());
  std::size_t mapped = 0;
  ++counters_.pool_changes;
  const auto take_back = [&] {
    while (mapped > 0) {
      --mapped;
      source_->unmap(holes[mapped].begin, holes[mapped].bytes);
    }
  };
  try {
    while (mapped < holes.size() && source_->map(holes[mapped].begin, holes[mapped].bytes)) ++mapped;
  } catch (...) {
    take_back();
    throw;
  }
  source_refused = mapped < holes.size();
  if (source_refused) {
    take_back();
    return false;
  }
  for (const AddressRange& hole : holes) {
    structure_.add_pages(hole.begin, hole.bytes);
    count_taken(hole.bytes);
  }
  return true;
}

// How far growth continues after the new pages that end a window: to the source's growth step, or, without growth, as
// far as the limit.
std::size_t PageSupply::extra_bytes(const PageWindow& window) const {
  const std::vector<AddressRange> holes = unmapped_in(window);
  if (holes.empty() || holes.back().end() != window.end) return 0;
  const auto& extents = structure_.regions();
  const auto extent = std::ranges::lower_bound(extents, window.end, {}, &BfcStructure::Region::address);
  const std::uintptr_t next =
      extent != extents.end() ? extent->address : addresses_.end();  // mapped again from there on
  const std::uint64_t most = std::min<std::uint64_t>(room() - window.cost_bytes, next - window.end);
  if (!options_.growth) return static_cast<std::size_t>(most);
  const std::uintptr_t step = page_ceil(window.end, source_->growth_bytes());
  return static_cast<std::size_t>(std::min<std::uint64_t>(most, step - window.end));
}

bool PageSupply::grow(std::size_t bytes, FreeState own, bool& source_refused) {
  const PageWindow window = cheapest_growth(bytes, own);
  if (!window.found() || window.cost_bytes > room()) return false;
  PageWindow wider = window;
  wider.end += extra_bytes(window);
  if (map_window(wider, source_refused)) return true;
  if (wider.end == window.end || !options_.growth) return false;
  return map_window(window, source_refused);
}

// After the last extent, where it can serve one request together with what is free at that end.
bool PageSupply::reserve(std::uint64_t bytes) {
  if (bytes > room()) return false;
  const auto& extents = structure_.regions();
  const std::uintptr_t begin = extents.empty() ? addresses_.begin : extents.back().address + extents.back().size;
  const std::size_t pages = page_ceil(static_cast<std::uintptr_t>(bytes), page_);
  bool source_refused = false;
  return pages <= addresses_.end() - begin && map_window({begin, begin + pages, pages}, source_refused);
}

std::vector<PageSupply::IdlePages> PageSupply::idle_pages() const {
  std::vector<IdlePages> found;
  for (const auto& extent : structure_.regions())
    for (ChunkId id = extent.first; id != extent.end; id = structure_.chunk(id).next) {
      const Chunk& chunk = structure_.chunk(id);
      if (chunk.kind != ChunkKind::free || chunk.state != kIdle) continue;
      if (const AddressRange pages = inner_pages(chunk.address, chunk.size, page_); pages.bytes != 0)
        found.push_back({id, pages});
    }
  return found;
}

// Unmaps idle pages outside of `keep`, the highest first, until the pool is at most `pool_bytes`; returns the bytes.
// Where all go, the lowest first: removing the end of the last extent moves no other extent's record.
std::uint64_t PageSupply::release_until(std::uint64_t pool_bytes, const PageWindow& keep) {
  const std::uintptr_t keep_begin = page_floor(keep.begin, page_), keep_end = page_ceil(keep.end, page_);
  std::uint64_t released = 0;
  const auto release = [&](ChunkId chunk, std::uintptr_t begin, std::uintptr_t end) {
    if (begin >= end || counters_.pool_bytes <= pool_bytes) return;
    const std::uint64_t wanted = page_ceil(counters_.pool_bytes - pool_bytes, page_);
    begin = std::max<std::uint64_t>(begin, end - std::min<std::uint64_t>(wanted, end - begin));
    structure_.reserve();
    ++counters_.pool_changes;
    source_->unmap(begin, end - begin);
    structure_.remove_pages(chunk, begin, end - begin);
    counters_.pool_bytes -= end - begin;
    released += end - begin;
  };
  std::vector<IdlePages> idle = idle_pages();
  if (pool_bytes != 0) std::ranges::reverse(idle);
  for (const auto& [chunk, pages] : idle) {
    release(chunk, std::max(pages.begin, keep_end), pages.end());
    // Where pages above were released too, those kept lie between, and the chunk's record is still its first part's.
    release(chunk, pages.begin, std::min(pages.end(), keep_begin));
  }
  return released;
}

bool PageSupply::release_and_grow(std::size_t bytes, FreeState own, bool& source_refused) {
  if (source_refused && !options_.growth) return false;  // the whole limit was asked for: less is a failure
  const PageWindow window = cheapest(bytes, [own](const Chunk& c) {
    return Use{c.state == kIdle || c.state == own, c.state == kIdle};
  });
  if (!window.found() || window.cost_bytes > limit() - (counters_.pool_bytes - idle_bytes())) return false;
  std::uint64_t missing = 0;
  for (const AddressRange& hole : unmapped_in(window)) missing += hole.bytes;
  // Nobody knows how much a source that refused has left, so all idle memory is released to it.
  release_until(source_refused ? 0 : page_floor(limit(), page_) - missing, window);
  return map_window(window, source_refused);
}

bool PageSupply::room_when_all_is_idle(std::size_t bytes, ChunkId also_free) const {
  const Rule all_idle = [](const Chunk&) { return Use{true, true}; };
  const PageWindow window = cheapest(bytes, all_idle, also_free);
  return window.found() && window.cost_bytes <= limit() - reserved_by_live_bytes(also_free);
}

std::uint64_t PageSupply::reserved_by_live_bytes(ChunkId also_free) const {
  std::uint64_t reserved = counters_.pool_bytes;
  for (const auto& extent : structure_.regions()) {
    std::uintptr_t free_from = extent.address;
    for (ChunkId id = extent.first; id != extent.end; id = structure_.chunk(id).next) {
      const Chunk& chunk = structure_.chunk(id);
      if (chunk.kind != ChunkKind::live || id == also_free) continue;
      reserved -= inner_pages(free_from, chunk.address - free_from, page_).bytes;
      free_from = chunk.address + chunk.size;
    }
    reserved -= inner_pages(free_from, extent.address + extent.size - free_from, page_).bytes;
  }
  return reserved;
}

std::uint64_t PageSupply::idle_bytes() const {
  std::uint64_t bytes = 0;
  for (const IdlePages& idle : idle_pages()) bytes += idle.pages.bytes;
  return bytes;
}

std::uint64_t PageSupply::release_idle() { return release_until(0, {}); }

void PageSupply::release_down_to(std::uint64_t pool_bytes) { release_until(pool_bytes, {}); }

std::string PageSupply::check() const {
  std::uintptr_t free_from = addresses_.begin;
  for (const auto& extent : structure_.regions()) {
    const std::string where = fmt::format("extent at {:#x} (+{}): ", extent.address, extent.size);
    if (extent.address % page_ != 0 || extent.size % page_ != 0 || extent.size == 0) return where + "not in pages";
    if (extent.address < free_from) return where + "overlaps or touches the one before, or is out of order";
    if (extent.address + extent.size > addresses_.end()) return where + "passes the reserved addresses";
    free_from = extent.address + extent.size + page_;
  }
  return "";
}

std::unique_ptr<Supply> make_supply(std::unique_ptr<MemorySource> source, BfcStructure& structure,
                                    const AllocatorOptions& options, MemoryStats& counters) {
  if (auto* pages = dynamic_cast<PagedSource*>(source.get())) {
    std::unique_ptr<PagedSource> owned(pages);
    (void)source.release();
    return std::make_unique<PageSupply>(std::move(owned), structure, options, counters);
  }
  auto* regions = dynamic_cast<RegionSource*>(source.get());
  if (regions == nullptr) throw Error(options.name + ": an allocator needs a source of regions or of pages");
  std::unique_ptr<RegionSource> owned(regions);
  (void)source.release();
  return std::make_unique<RegionSupply>(std::move(owned), structure, options, counters);
}

}  // namespace bantam
