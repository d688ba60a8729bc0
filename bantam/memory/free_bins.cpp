// Treaps without parent links or recursion: split on insertion, merge on removal.
#include "bantam/memory/free_bins.h"

namespace bantam {
namespace {

// The finaliser of MurmurHash3: neighbouring addresses get unrelated priorities, so that depth stays logarithmic.
std::uint32_t hash_of(std::uintptr_t address) {
  std::uint64_t h = address / FreeBins::kGranule;
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdULL;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return static_cast<std::uint32_t>(h ^ (h >> 33));
}

}  // namespace

void FreeBins::insert(std::vector<Chunk>& chunks, ChunkId id) {
  Chunk& chunk = chunks[id];
  chunk.priority = hash_of(chunk.address);
  const int bin = bin_of(chunk.size);
  ChunkId* link = &roots_[static_cast<std::size_t>(bin)];
  while (*link != kNoChunk && chunks[*link].priority >= chunk.priority)
    link = fits_before(chunk, chunks[*link]) ? &chunks[*link].left : &chunks[*link].right;
  // The subtree below `link` is split by the new key into the new node's two children.
  ChunkId rest = *link;
  *link = id;
  ChunkId* smaller = &chunk.left;
  ChunkId* larger = &chunk.right;
  while (rest != kNoChunk) {
    if (fits_before(chunks[rest], chunk)) {
      *smaller = rest;
      smaller = &chunks[rest].right;
      rest = *smaller;
    } else {
      *larger = rest;
      larger = &chunks[rest].left;
      rest = *larger;
    }
  }
  *smaller = *larger = kNoChunk;
  occupied_ |= 1u << bin;
}

void FreeBins::erase(std::vector<Chunk>& chunks, ChunkId id) {
  Chunk& chunk = chunks[id];
  const auto bin = static_cast<std::size_t>(bin_of(chunk.size));
  ChunkId* link = &roots_[bin];
  while (*link != id) link = fits_before(chunk, chunks[*link]) ? &chunks[*link].left : &chunks[*link].right;
  ChunkId smaller = chunk.left;
  ChunkId larger = chunk.right;
  while (smaller != kNoChunk && larger != kNoChunk) {
    if (chunks[smaller].priority >= chunks[larger].priority) {
      *link = smaller;
      link = &chunks[smaller].right;
      smaller = *link;
    } else {
      *link = larger;
      link = &chunks[larger].left;
      larger = *link;
    }
  }
  *link = smaller != kNoChunk ? smaller : larger;
  chunk.left = chunk.right = kNoChunk;
  if (roots_[bin] == kNoChunk) occupied_ &= ~(1u << bin);
}

ChunkId FreeBins::best_fit(const std::vector<Chunk>& chunks, std::size_t bytes) const {
  for (std::uint32_t bins = occupied_ & (~0u << bin_of(bytes)); bins != 0; bins &= bins - 1) {
    ChunkId found = kNoChunk;
    for (ChunkId at = roots_[static_cast<std::size_t>(std::countr_zero(bins))]; at != kNoChunk;) {
      if (chunks[at].size >= bytes) {
        found = at;
        at = chunks[at].left;
      } else {
        at = chunks[at].right;
      }
    }
    if (found != kNoChunk) return found;
  }
  return kNoChunk;
}

ChunkId FreeBins::largest(const std::vector<Chunk>& chunks) const {
  if (occupied_ == 0) return kNoChunk;
  ChunkId at = roots_[static_cast<std::size_t>(std::bit_width(occupied_) - 1)];
  while (chunks[at].right != kNoChunk) at = chunks[at].right;
  return at;
}

}  // namespace bantam
