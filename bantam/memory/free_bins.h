// Internal: the free chunks of one state in 21 bins by size, each a treap ordered by (size, address), for best fit.
#pragma once

#include <array>
#include <bit>
#include <vector>

#include "bantam/memory/chunk.h"

namespace bantam {

/// Bin b holds sizes in [256·2^b, 256·2^(b+1)), the last one all above. All calls take O(log n) expected steps and no
/// heap memory. The trees' links lie in the chunks; priorities are hashes of addresses, so that the same chunks always
/// give the same trees.
class FreeBins {
 public:
  static constexpr int kBins = 21;
  static constexpr std::size_t kGranule = 256;

  FreeBins() { roots_.fill(kNoChunk); }

  static int bin_of(std::size_t bytes) {
    const int bin = std::bit_width(bytes / kGranule) - 1;
    return bin < kBins ? bin : kBins - 1;
  }

  void insert(std::vector<Chunk>& chunks, ChunkId id);
  /// `id` is in these bins.
  void erase(std::vector<Chunk>& chunks, ChunkId id);
  /// The smallest chunk of at least `bytes` (at least one granule), of equals the lowest address; kNoChunk where there
  /// is none.
  ChunkId best_fit(const std::vector<Chunk>& chunks, std::size_t bytes) const;
  /// The largest chunk; kNoChunk where there is none.
  ChunkId largest(const std::vector<Chunk>& chunks) const;

  ChunkId root(int bin) const { return roots_[static_cast<std::size_t>(bin)]; }
  std::uint32_t occupied() const { return occupied_; }

 private:
  std::array<ChunkId, kBins> roots_;
  std::uint32_t occupied_ = 0;  // bit b: bin b is not empty
};

/// The order of chunks in a bin.
inline bool fits_before(const Chunk& a, const Chunk& b) {
  return a.size != b.size ? a.size < b.size : a.address < b.address;
}

}  // namespace bantam
