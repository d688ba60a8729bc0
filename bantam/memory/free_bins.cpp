// Treaps without parent links or recursion: split on insertion, merge on removal.
#include "bantam/memory/free_bins.h"

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

// Of the chunks in the request's own bin some may be too small; all above are large enough.
ChunkId FreeBins::best_fit(const std::vector<Chunk>& chunks, std::size_t bytes) const {
  const auto bin = static_cast<std::size_t>(bin_of(bytes));
  ChunkId found = kNoChunk;
  for (ChunkId at = roots_[bin]; at != kNoChunk;) {
    const bool fits = chunks[at].size >= bytes;
    found = fits ? at : found;
    at = fits ? chunks[at].left : chunks[at].right;
  }
  return found != kNoChunk ? found : smallest_above(chunks, bin);
}

ChunkId FreeBins::smallest_above(const std::vector<Chunk>& chunks, std::size_t bin) const {
  std::size_t word = bin / 64;
  std::uint64_t bins = occupied_[word] & (~std::uint64_t{1} << bin % 64);
  if (bins == 0) {
    const std::uint32_t words = words_ & (~std::uint32_t{1} << word);
    if (words == 0) return kNoChunk;
    word = static_cast<std::size_t>(std::countr_zero(words));
    bins = occupied_[word];
  }
  ChunkId at = roots_[word * 64 + static_cast<std::size_t>(std::countr_zero(bins))];
  while (chunks[at].left != kNoChunk) at = chunks[at].left;
  return at;
}

ChunkId FreeBins::largest(const std::vector<Chunk>& chunks) const {
  if (words_ == 0) return kNoChunk;
  const auto word = static_cast<std::size_t>(std::bit_width(words_) - 1);
  ChunkId at = roots_[word * 64 + static_cast<std::size_t>(std::bit_width(occupied_[word]) - 1)];
  while (chunks[at].right != kNoChunk) at = chunks[at].right;
  return at;
}

}  // namespace bantam
