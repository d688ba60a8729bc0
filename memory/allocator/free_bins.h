// Internal: the free chunks of one state in bins by size, each a treap ordered by (size, address), for best fit.
#pragma once

#include <array>
#include <bit>
#include <vector>

#include "bantam/memory/allocator/chunk.h"

namespace bantam {

/// Each doubling of size, from one allocation unit on, is cut into 64 bins of equal width; the last bin holds all above
/// 64 GiB. With so many bins most have one chunk or none, and a search needs no walk. All calls run in O(log n)
/// expected steps and allocate no heap memory. The trees' links lie in the chunks; priorities are hashes of addresses,
/// so that the same chunks always form the same trees.
class FreeBins {
 public:
  static constexpr int kSteps = 64;  ///< bins a doubling
  static constexpr int kDoublings = 28;
  static constexpr int kBins = kSteps * kDoublings;
  static constexpr std::size_t kAllocationUnit = 256;

  FreeBins() { roots_.fill(kNoChunk); }

  static int bin_of(std::size_t bytes) {
    const std::size_t units = bytes / kAllocationUnit;
    const int doubling = std::bit_width(units) - 1;
    if (doubling >= kDoublings) return kBins - 1;
    const int step = static_cast<int>((units * kSteps) >> doubling) - kSteps;
    return doubling * kSteps + step;
  }

  void insert(std::vector<Chunk>& chunks, ChunkId id) {
    Chunk& chunk = chunks[id];
    const auto bin = static_cast<std::size_t>(bin_of(chunk.size));
    if (roots_[bin] != kNoChunk) return insert_below(chunks, id, bin);
    roots_[bin] = id;
    chunk.left = chunk.right = kNoChunk;
    occupied_[bin / 64] |= std::uint64_t{1} << bin % 64;
    words_ |= 1u << bin / 64;
  }
  /// `id` is in these bins.
  void erase(std::vector<Chunk>& chunks, ChunkId id) {
    const Chunk& chunk = chunks[id];
    const auto bin = static_cast<std::size_t>(bin_of(chunk.size));
    if (roots_[bin] != id || (chunk.left & chunk.right) != kNoChunk) return erase_below(chunks, id, bin);
    roots_[bin] = kNoChunk;
    occupied_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
    if (occupied_[bin / 64] == 0) words_ &= ~(1u << bin / 64);
  }
  /// The smallest chunk of at least `bytes` (at least one allocation unit), of equals the lowest address; kNoChunk
  /// where there is none.
  ChunkId best_fit(const std::vector<Chunk>& chunks, std::size_t bytes) const {
    // Some chunks in the request's own bin may be too small; those in all bins above are large enough.
    const auto bin = static_cast<std::size_t>(bin_of(bytes));
    ChunkId found = kNoChunk;
    for (ChunkId at = roots_[bin]; at != kNoChunk;) {
      const bool fits = chunks[at].size >= bytes;
      found = fits ? at : found;
      at = fits ? chunks[at].left : chunks[at].right;
    }
    return found != kNoChunk ? found : smallest_above(chunks, bin);
  }
  /// The largest chunk; kNoChunk where there is none.
  ChunkId largest(const std::vector<Chunk>& chunks) const;

  ChunkId root(int bin) const { return roots_[static_cast<std::size_t>(bin)]; }
  bool occupied(int bin) const {
    const auto word = static_cast<std::size_t>(bin) / 64;
    return (occupied_[word] >> bin % 64 & 1) != 0 && (words_ >> word & 1) != 0;
  }

 private:
  static constexpr std::size_t kWords = kBins / 64;
  static_assert(kBins % 64 == 0 && kWords < 32);

  void insert_below(std::vector<Chunk>& chunks, ChunkId id, std::size_t bin);
  void erase_below(std::vector<Chunk>& chunks, ChunkId id, std::size_t bin);
  ChunkId smallest_above(const std::vector<Chunk>& chunks, std::size_t bin) const {
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

  std::array<ChunkId, kBins> roots_;
  std::array<std::uint64_t, kWords> occupied_{};  // bit b: bin b is not empty
  std::uint32_t words_ = 0;                       // bit w: occupied_[w] is not 0
};

/// A chunk's place in the heap order of its tree: neighbouring addresses get unrelated ones, so that depth stays
/// logarithmic.
inline std::uint32_t priority_of(std::uintptr_t address) {
  // The finaliser of MurmurHash3.
  std::uint64_t h = address / FreeBins::kAllocationUnit;
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdULL;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return static_cast<std::uint32_t>(h ^ (h >> 33));
}

/// The order of chunks in a bin.
inline bool fits_before(const Chunk& a, const Chunk& b) {
  return a.size != b.size ? a.size < b.size : a.address < b.address;
}

}  // namespace bantam
