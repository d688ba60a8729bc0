// Internal: a chunk is a stretch of a region, live or free; chunks tile their region from end to end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/memory/accounting.h"

namespace bantam {

/// Chunks are named by their place in one vector: half a pointer's size, and stable when the vector grows.
using ChunkId = std::uint32_t;
inline constexpr ChunkId kNoChunk = ~ChunkId{0};

/// Who may use free memory: kIdle, everyone; s > 0, only the stream in slot s, until its work up to the ticket is done.
using FreeState = std::uint32_t;
inline constexpr FreeState kIdle = 0;

enum class ChunkKind : std::uint8_t { unused, free, live };

/// What walks through trees and neighbours read comes first, in one cache line.
struct alignas(64) Chunk {
  std::uintptr_t address = 0;
  std::size_t size = 0;
  ChunkId left = kNoChunk;  ///< free: children in the bin's tree; unused: `left` is the next unused record
  ChunkId right = kNoChunk;
  std::uint32_t priority = 0;  ///< the tree's heap order, a hash of the address
  FreeState state = kIdle;     ///< free
  ChunkId prev = kNoChunk;     ///< neighbours by address, in the same region
  ChunkId next = kNoChunk;
  ChunkId older = kNoChunk;  ///< free with state > 0: neighbours in the state's list, by ticket
  ChunkId newer = kNoChunk;
  ChunkKind kind = ChunkKind::unused;
  std::uint64_t ticket = 0;   ///< free with state > 0: which free of its stream made it so
  std::size_t requested = 0;  ///< live: what the caller asked for
  AllocationTag tag;          ///< live
};

}  // namespace bantam
