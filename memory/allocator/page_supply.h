// Internal: memory by pages, mapped where a request needs the fewest new ones, and unmapped wherever they are idle.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bantam/memory/allocator/page_window.h"
#include "bantam/memory/allocator/supply.h"
#include "bantam/memory/pages/paged_source.h"

namespace bantam {

/// The structure's regions are the extents: maximal runs of mapped pages, by address.
///
/// Growth looks at all address ranges without live memory and maps the pages that a request needs next to the memory
/// that is free already. Where limit or source refuse, idle pages anywhere are unmapped for it, so a request fails only
/// where the pages that live memory lies on, and the request, pass the limit together.
class PageSupply final : public Supply {
 public:
  PageSupply(std::unique_ptr<PagedSource> source, BfcStructure& structure, const AllocatorOptions& options,
             MemoryStats& counters);
  ~PageSupply() override;

  bool grow(std::size_t bytes, FreeState own, bool& source_refused) override;
  bool reserve(std::uint64_t bytes) override;
  bool release_and_grow(std::size_t bytes, FreeState own, bool& source_refused) override;
  bool room_when_all_is_idle(std::size_t bytes, ChunkId also_free) const override;
  std::uint64_t reserved_by_live_bytes(ChunkId also_free) const override;
  std::uint64_t idle_bytes() const override;
  std::uint64_t release_idle() override;
  void release_down_to(std::uint64_t pool_bytes) override;
  std::size_t page_bytes() const override { return page_; }
  std::string check() const override;

 private:
  /// Whether a chunk can serve the request, and whether it counts as idle: its whole pages could be released.
  struct Use {
    bool eligible = false;
    bool idle = false;
  };
  using Rule = std::function<Use(const Chunk&)>;
  /// Whole pages inside of an idle chunk.
  struct IdlePages {
    ChunkId chunk = kNoChunk;
    AddressRange pages;
  };

  PageWindow cheapest_growth(std::size_t bytes, FreeState own) const;
  PageWindow cheapest(std::size_t bytes, const Rule& rule, ChunkId also_free = kNoChunk) const;
  bool map_window(const PageWindow& window, bool& source_refused);
  std::vector<AddressRange> unmapped_in(const PageWindow& window) const;
  std::size_t extra_bytes(const PageWindow& window) const;
  std::vector<IdlePages> idle_pages() const;
  std::uint64_t release_until(std::uint64_t pool_bytes, const PageWindow& keep);
  std::uint64_t room() const;

  std::unique_ptr<PagedSource> source_;
  const std::size_t page_;
  const AddressRange addresses_;
};

}  // namespace bantam
