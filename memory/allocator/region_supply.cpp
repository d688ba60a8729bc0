// Regions: growth by doubling, back-off when the source refuses, release of what is wholly idle.
#include "bantam/memory/allocator/region_supply.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr std::size_t kAddressSpace = std::numeric_limits<std::size_t>::max();

std::size_t floor_unit(std::uint64_t bytes) {
  return static_cast<std::size_t>(bytes / BfcAllocator::kAllocationUnit * BfcAllocator::kAllocationUnit);
}

}  // namespace

RegionSupply::RegionSupply(std::unique_ptr<RegionSource> source, BfcStructure& structure,
                           const AllocatorOptions& options, MemoryStats& counters)
    : Supply(structure, options, counters), source_(std::move(source)), next_region_(first_region()) {}

RegionSupply::~RegionSupply() {
  for (const auto& region : structure_.regions())
    source_->release(reinterpret_cast<void*>(region.address), region.size);
}

std::size_t RegionSupply::first_region() const {
  const std::uint64_t most = floor_unit(kAddressSpace / 2);
  return std::max(BfcAllocator::kAllocationUnit,
                  floor_unit(std::min(options_.first_region_bytes, most) + BfcAllocator::kAllocationUnit - 1));
}

// The bytes that the limit allows for a new region.
std::size_t RegionSupply::room() const { return floor_unit(limit() - counters_.pool_bytes); }

// Whether releasing `releasable` bytes of regions makes room for `bytes` under the limit.
bool RegionSupply::fits_after_releasing(std::size_t bytes, std::uint64_t releasable) const {
  return releasable != 0 && bytes <= limit() - (counters_.pool_bytes - releasable);
}

// Asks the source for `size` bytes, then for less and less down to `least`; sets `size` to the bytes received.
void* RegionSupply::acquire(std::size_t& size, std::size_t least) {
  void* address = source_->acquire(size);
  while (address == nullptr && size > least) {
    size = std::max(least, floor_unit(size / 10 * 9));  // at least an allocation unit less each time, so this ends
    address = source_->acquire(size);
  }
  return address;
}

// Adds a region of `size` bytes, or of less down to `least`.
bool RegionSupply::add_region(std::size_t size, std::size_t least, bool& source_refused) {
  structure_.reserve();
  ++counters_.pool_changes;
  void* memory = acquire(size, least);
  source_refused = memory == nullptr;
  if (memory == nullptr) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (address % BfcAllocator::kAllocationUnit != 0) {
    source_->release(memory, size);
    throw Error(fmt::format("{}: source '{}' gave an address that is not aligned to {} bytes", options_.name,
                            source_->name(), BfcAllocator::kAllocationUnit));
  }
  structure_.add_region(address, size);
  count_taken(size);
  return true;
}

bool RegionSupply::grow(std::size_t bytes, FreeState, bool& source_refused) {
  const std::size_t most = room();
  if (bytes > most) return false;
  const std::size_t size = options_.growth ? std::min(std::max(next_region_, bytes), most) : most;
  if (!add_region(size, options_.growth ? bytes : size, source_refused)) return false;
  if (next_region_ <= kAddressSpace / 4) next_region_ *= 2;
  return true;
}

bool RegionSupply::reserve(std::uint64_t bytes) {
  if (bytes > room()) return false;
  const std::size_t size = floor_unit(bytes + BfcAllocator::kAllocationUnit - 1);
  bool source_refused = false;
  return add_region(size, size, source_refused);
}

bool RegionSupply::release_and_grow(std::size_t bytes, FreeState own, bool& source_refused) {
  if (!fits_after_releasing(bytes, idle_bytes())) return false;
  release_idle();
  return grow(bytes, own, source_refused);
}

bool RegionSupply::room_when_all_is_idle(std::size_t bytes, ChunkId also_free) const {
  return fits_after_releasing(bytes, structure_.bytes_without_live(also_free));
}

std::uint64_t RegionSupply::reserved_by_live_bytes(ChunkId also_free) const {
  return counters_.pool_bytes - structure_.bytes_without_live(also_free);
}

std::uint64_t RegionSupply::idle_bytes() const {
  std::uint64_t idle = 0;
  for (const auto& region : structure_.regions()) idle += structure_.is_idle(region) ? region.size : 0;
  return idle;
}

void RegionSupply::release(std::size_t index) {
  const auto region = structure_.remove_region(index);
  ++counters_.pool_changes;
  source_->release(reinterpret_cast<void*>(region.address), region.size);
  counters_.pool_bytes -= region.size;
}

// From what is left; else a program that trims each epoch would double its regions each time.
void RegionSupply::start_growth_again() {
  std::size_t largest = 0;
  for (const auto& region : structure_.regions()) largest = std::max(largest, region.size);
  next_region_ = std::min(next_region_, std::max(first_region(), std::min(largest, kAddressSpace / 4) * 2));
}

std::uint64_t RegionSupply::release_idle() {
  const std::uint64_t before = counters_.pool_bytes;
  for (std::size_t i = structure_.regions().size(); i-- > 0;)
    if (structure_.is_idle(structure_.regions()[i])) release(i);
  if (counters_.pool_bytes != before) start_growth_again();
  return before - counters_.pool_bytes;
}

// The smallest idle region that is enough, of equals the latest; where none is, the largest, and so on.
void RegionSupply::release_down_to(std::uint64_t pool_bytes) {
  const std::uint64_t before = counters_.pool_bytes;
  while (counters_.pool_bytes > pool_bytes) {
    const auto& regions = structure_.regions();
    const std::uint64_t missing = counters_.pool_bytes - pool_bytes;
    const auto better = [&](std::size_t a, std::size_t b) {
      const bool a_enough = regions[a].size >= missing, b_enough = regions[b].size >= missing;
      return a_enough != b_enough ? a_enough
             : a_enough           ? regions[a].size < regions[b].size
                                  : regions[a].size > regions[b].size;
    };
    std::size_t best = regions.size();
    for (std::size_t i = regions.size(); i-- > 0;)
      if (structure_.is_idle(regions[i]) && (best == regions.size() || better(i, best))) best = i;
    if (best == regions.size()) break;
    release(best);
  }
  if (counters_.pool_bytes != before) start_growth_again();
}

}  // namespace bantam
