// Treaps without parent links or recursion: split on insertion, merge on removal.
#include "bantam/memory/allocator/free_bins.h"

namespace bantam {

// Into a bin that is not empty.
void FreeBins::insert_below(std::vector<Chunk>& chunks, ChunkId id, std::size_t bin) {
  Chunk& chunk = chunks[id];
  const std::uint32_t priority = priority_of(chunk.address);
  ChunkId* link = &roots_[bin];
  while (*link != kNoChunk && priority_of(chunks[*link].address) >= priority)
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

// From a bin that stays occupied.
void FreeBins::erase_below(std::vector<Chunk>& chunks, ChunkId id, std::size_t bin) {
  const Chunk& chunk = chunks[id];
  ChunkId* link = &roots_[bin];
  while (*link != id) link = fits_before(chunk, chunks[*link]) ? &chunks[*link].left : &chunks[*link].right;
  ChunkId smaller = chunk.left;
  ChunkId larger = chunk.right;
  while (smaller != kNoChunk && larger != kNoChunk) {
    if (priority_of(chunks[smaller].address) >= priority_of(chunks[larger].address)) {
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
}

ChunkId FreeBins::largest(const std::vector<Chunk>& chunks) const {
  if (words_ == 0) return kNoChunk;
  const auto word = static_cast<std::size_t>(std::bit_width(words_) - 1);
  ChunkId at = roots_[word * 64 + static_cast<std::size_t>(std::bit_width(occupied_[word]) - 1)];
  while (chunks[at].right != kNoChunk) at = chunks[at].right;
  return at;
}

}  // namespace bantam
