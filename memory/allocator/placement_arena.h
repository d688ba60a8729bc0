// Internal: the arena of one allocator: the plan being followed and the live places.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bantam/memory/allocator/address_map.h"
#include "bantam/memory/allocator/chunk.h"
#include "bantam/memory/allocator/placement.h"
#include "bantam/memory/device/same_stream.h"

namespace bantam {

/// A memory range (one live chunk of the structure) and the planned allocations that live in it. Places are the plan's
/// entries: place k is live or not. Only `begin` allocates heap memory. Callers have locked the allocator.
class PlacementArena {
 public:
  using Place = std::uint32_t;
  /// A planned allocation.
  struct Placed {
    std::uintptr_t address = 0;
    std::size_t size = 0;
    std::size_t requested = 0;  ///< 0: not live
    AllocationTag tag;
  };

  /// Becomes the given chunk, for work on `stream`; kNoChunk drops the current one, which is idle.
  void set(ChunkId chunk, std::uintptr_t address, std::uint64_t bytes, Stream stream);

  ChunkId chunk() const { return chunk_; }
  std::uint64_t bytes() const { return bytes_; }
  Stream stream() const { return stream_; }
  bool idle() const { return live_.size() == 0 && !acquired_; }
  /// Keeps an idle arena, if it has this address and at least these bytes, from being released.
  bool hold(std::uintptr_t address, std::uint64_t bytes, Stream stream);
  void let_go() { acquired_ = false; }
  std::uintptr_t address() const { return address_; }
  bool contains(const void* address) const { return reinterpret_cast<std::uintptr_t>(address) - address_ < bytes_; }

  /// Follows `plan` from its first entry on, where it can (PlacementScope); returns its number, from 1, else 0.
  std::uint64_t begin(std::shared_ptr<const PlacementPlan> plan, Stream stream);
  /// Ends it. Live places stay.
  void end() { plan_.reset(); }
  bool following() const { return plan_ != nullptr; }
  /// Whether the plan being followed is the one of that number.
  bool following(std::uint64_t placement) const { return plan_ != nullptr && placements_ == placement; }
  /// Whether requests on `stream` are the plan's.
  bool follows(Stream stream) const { return plan_ != nullptr && same_stream(stream, stream_); }

  /// The next place, if it is for `bytes` and free.
  std::optional<Place> next(std::size_t bytes) const;
  /// Makes the next place live.
  const Placed& occupy(Place place, std::size_t requested, AllocationTag tag);
  /// The live place that begins at `address`.
  std::optional<Place> find(const void* address) const;
  const Placed& placed(Place place) const { return placed_[place]; }
  void release(Place place);

  /// The live place that `address` lies in. Walks places: for messages.
  std::optional<Place> containing(const void* address) const;
  void for_each_live(const std::function<void(const Placed&)>& visit) const;
  /// "" or the first broken invariant; `in_use_bytes` is what the allocator counts here.
  std::string check(std::uint64_t in_use_bytes) const;

 private:
  ChunkId chunk_ = kNoChunk;
  std::uintptr_t address_ = 0;
  std::uint64_t bytes_ = 0;
  Stream stream_;
  bool acquired_ = false;
  std::shared_ptr<const PlacementPlan> plan_;
  std::uint64_t placements_ = 0;  // plans that were begun
  Place next_ = 0;
  std::vector<Placed> placed_;  // by place; grows to the longest plan's length
  AddressMap live_;             // from addresses to places

  struct AddressOf {
    const std::vector<Placed>& placed;
    std::uintptr_t operator()(Place place) const { return placed[place].address; }
  };
  AddressOf address_of() const { return {placed_}; }
};

}  // namespace bantam
