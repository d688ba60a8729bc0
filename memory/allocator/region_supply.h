// Internal: memory by whole regions, which double in size and are released when they are wholly free.
#pragma once

#include <memory>

#include "bantam/memory/allocator/supply.h"

namespace bantam {

class RegionSupply final : public Supply {
 public:
  RegionSupply(std::unique_ptr<RegionSource> source, BfcStructure& structure, const AllocatorOptions& options,
               MemoryStats& counters);
  ~RegionSupply() override;

  bool grow(std::size_t bytes, FreeState own, bool& source_refused) override;
  bool reserve(std::uint64_t bytes) override;
  bool release_and_grow(std::size_t bytes, FreeState own, bool& source_refused) override;
  bool room_when_all_is_idle(std::size_t bytes, ChunkId also_free) const override;
  std::uint64_t reserved_by_live_bytes(ChunkId also_free) const override;
  std::uint64_t idle_bytes() const override;
  std::uint64_t release_idle() override;
  void release_down_to(std::uint64_t pool_bytes) override;

 private:
  std::size_t first_region() const;
  std::size_t room() const;
  bool fits_after_releasing(std::size_t bytes, std::uint64_t releasable) const;
  bool add_region(std::size_t size, std::size_t least, bool& source_refused);
  void* acquire(std::size_t& size, std::size_t least);
  void release(std::size_t index);
  void start_growth_again();

  std::unique_ptr<RegionSource> source_;
  std::size_t next_region_ = 0;
};

}  // namespace bantam
