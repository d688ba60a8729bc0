// Internal: a chunk is a contiguous part of a region, live or free; chunks tile their region from end to end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/memory/allocator/accounting.h"

namespace bantam {

/// Chunks are named by their place in one vector: half a pointer's size, and stable when the vector grows.
using ChunkId = std::uint32_t;
inline constexpr ChunkId kNoChunk = ~ChunkId{0};

/// Who may use free memory: kIdle, everyone; s > 0, only the stream in slot s, until its work up to the ticket is done.
using FreeState = std::uint32_t;
inline constexpr FreeState kIdle = 0;

/// end: no memory; the record after a region's last chunk, so that the last chunk is found at once.
enum class ChunkKind : std::uint8_t { unused, free, live, end };

/// One cache line: a call touches a few chunks, and waiting for their lines is much of what it costs.
struct alignas(64) Chunk {
  std::uintptr_t address = 0;
  std::size_t size = 0;
  ChunkId left = kNoChunk;  ///< free: children in the bin's tree; unused: `left` is the next unused record
  ChunkId right = kNoChunk;
  ChunkId prev = kNoChunk;  ///< neighbours by address, in the same region; the last's next is its end
  ChunkId next = kNoChunk;
  FreeState state = kIdle;  ///< free
  ChunkKind kind = ChunkKind::unused;
  std::size_t requested = 0;  ///< live: what the caller asked for
  AllocationTag tag;          ///< live
};
static_assert(sizeof(Chunk) == 64);

/// The fields that only free chunks with state > 0 have; kept apart, for most programs never have one.
struct DeferredFree {
  std::uint64_t ticket = 0;  ///< which free of its stream made it so
  ChunkId older = kNoChunk;  ///< neighbours in the state's list, by ticket
  ChunkId newer = kNoChunk;
};

}  // namespace bantam
