// Treaps without parent links or recursion: split on insertion, merge on removal.
#include "bantam/memory/free_bins.h"

namespace bantam {
void FreeBins::insert(std::vector<Chunk>& chunks, ChunkId id) {
  Chunk& chunk = chunks[id];
  const auto bin = static_cast<std::size_t>(bin_of(chunk.size));
  ChunkId* link = &roots_[bin];
  if (*link == kNoChunk) {
    *link = id;
    chunk.left = chunk.right = kNoChunk;
    occupied_[bin / 64] |= std::uint64_t{1} << bin % 64;
    return;
  }
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
  if (roots_[bin] == kNoChunk) occupied_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
}

ChunkId FreeBins::best_fit(const std::vector<Chunk>& chunks, std::size_t bytes) const {
  const auto first = static_cast<std::size_t>(bin_of(bytes));
  std::uint64_t mask = ~std::uint64_t{0} << first % 64;  // bins below the first hold nothing large enough
  for (std::size_t word = first / 64; word < kWords; ++word, mask = ~std::uint64_t{0}) {
    for (std::uint64_t bins = occupied_[word] & mask; bins != 0; bins &= bins - 1) {
      ChunkId found = kNoChunk;
      for (ChunkId at = roots_[word * 64 + static_cast<std::size_t>(std::countr_zero(bins))]; at != kNoChunk;) {
        const bool fits = chunks[at].size >= bytes;
        found = fits ? at : found;
        at = fits ? chunks[at].left : chunks[at].right;
      }
      if (found != kNoChunk) return found;
    }
  }
  return kNoChunk;
}

ChunkId FreeBins::largest(const std::vector<Chunk>& chunks) const {
  for (std::size_t word = kWords; word-- > 0;) {
    if (occupied_[word] == 0) continue;
    ChunkId at = roots_[word * 64 + static_cast<std::size_t>(std::bit_width(occupied_[word]) - 1)];
    while (chunks[at].right != kNoChunk) at = chunks[at].right;
    return at;
  }
  return kNoChunk;
}

}  // namespace bantam
