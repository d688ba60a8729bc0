// Allocation and release of planned places.
#include "bantam/memory/allocator/placement_arena.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

namespace bantam {

void PlacementArena::set(ChunkId chunk, std::uintptr_t address, std::uint64_t bytes, Stream stream) {
  chunk_ = chunk;
  address_ = address;
  bytes_ = bytes;
  stream_ = stream;
  plan_.reset();
}

std::uint64_t PlacementArena::begin(std::shared_ptr<const PlacementPlan> plan, Stream stream) {
  const bool usable = chunk_ != kNoChunk && plan_ == nullptr && idle() && plan->arena_bytes() <= bytes_;
  if (!usable || !same_stream(stream, stream_)) return 0;
  if (placed_.size() < plan->size()) placed_.resize(plan->size());
  live_.reserve(plan->size(), address_of());
  plan_ = std::move(plan);
  next_ = 0;
  return ++placements_;
}

bool PlacementArena::hold(std::uintptr_t address, std::uint64_t bytes, Stream stream) {
  const bool there = chunk_ != kNoChunk && address_ == address && bytes_ >= bytes && same_stream(stream, stream_);
  if (!there || !idle() || following()) return false;
  acquired_ = true;
  return true;
}

std::optional<PlacementArena::Place> PlacementArena::next(std::size_t bytes) const {
  if (next_ >= plan_->size() || plan_->entry(next_).bytes != bytes) return std::nullopt;
  for (const Place earlier : plan_->blockers(next_))
    if (placed_[earlier].requested != 0) return std::nullopt;
  return next_;
}

const PlacementArena::Placed& PlacementArena::occupy(Place place, std::size_t requested, AllocationTag tag) {
  const PlacementPlan::Entry& entry = plan_->entry(place);
  placed_[place] = {address_ + entry.offset, entry.bytes, requested, tag};
  live_.insert(placed_[place].address, place);
  ++next_;
  return placed_[place];
}

std::optional<PlacementArena::Place> PlacementArena::find(const void* address) const {
  const Place place = live_.find(reinterpret_cast<std::uintptr_t>(address), address_of());
  return place == kNoChunk ? std::nullopt : std::optional(place);
}

void PlacementArena::release(Place place) {
  live_.erase(placed_[place].address, place, address_of());
  placed_[place].requested = 0;
}

std::optional<PlacementArena::Place> PlacementArena::containing(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto holds = [at](const Placed& p) { return p.requested != 0 && at - p.address < p.size; };
  const auto found = std::ranges::find_if(placed_, holds);
  return found == placed_.end() ? std::nullopt : std::optional(static_cast<Place>(found - placed_.begin()));
}

void PlacementArena::for_each_live(const std::function<void(const Placed&)>& visit) const {
  for (const Placed& placed : placed_)
    if (placed.requested != 0) visit(placed);
}

std::string PlacementArena::check(std::uint64_t in_use_bytes) const {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  std::uint64_t found = 0;
  for (Place place = 0; place < placed_.size(); ++place) {
    const Placed& p = placed_[place];
    if (p.requested == 0) continue;
    if (p.requested > p.size || live_.find(p.address, address_of()) != place)
      return fmt::format("place {}: wrong in the map", place);
    if (p.address < address_ || p.size > bytes_ || p.address - address_ > bytes_ - p.size)
      return fmt::format("place {} lies outside the arena", place);
    ranges.emplace_back(p.address, p.address + p.size);
    found += p.size;
  }
  std::ranges::sort(ranges);
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second) return fmt::format("two places overlap at {:#x}", ranges[i].first);
  if (ranges.size() != live_.size()) return fmt::format("{} places live, {} in the map", ranges.size(), live_.size());
  if (found != in_use_bytes) return fmt::format("arena: {} bytes counted in use, {} found", in_use_bytes, found);
  if (chunk_ == kNoChunk && (bytes_ != 0 || !ranges.empty() || plan_ != nullptr)) return "an arena without a chunk";
  return "";
}

}  // namespace bantam
