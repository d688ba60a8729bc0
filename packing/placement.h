// Internal: one placement of buffers: at gaps in a given order, or on a skyline from below.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace bantam::planner {

using Index = std::int32_t;

inline std::size_t at(Index index) { return static_cast<std::size_t>(index); }

/// Buffers of some size, with times numbered 0 … `times` - 1 and sizes rounded up to the alignment.
struct Problem {
  std::vector<Index> lower, upper;
  std::vector<std::uint64_t> size;
  Index times = 0;
  std::uint64_t alignment = 1;  ///< offsets and sizes are multiples of it
  std::uint64_t max_live = 0;   ///< most rounded bytes alive at one time: a lower bound of the arena
  std::size_t count() const { return size.size(); }
};

/// Where buffers lie, by index, and the highest end.
struct Placement {
  std::vector<std::uint64_t> offset;
  std::uint64_t height = std::numeric_limits<std::uint64_t>::max();
};

/// The indices of pairs (key, index), least key first; of equal keys, least index.
std::vector<Index> sorted_indices(std::vector<std::pair<std::int64_t, Index>> keyed);

/// The indices [0, count) by integers key(i), least first; of equals in their order.
template <typename Key>
std::vector<Index> sorted_by_key(std::size_t count, Key key) {
  std::vector<std::pair<std::int64_t, Index>> keyed(count);
  for (std::size_t i = 0; i < count; ++i) keyed[i] = {static_cast<std::int64_t>(key(i)), static_cast<Index>(i)};
  return sorted_indices(std::move(keyed));
}

/// Calls visit(i, j), until it says false, for each pair of buffers alive together.
template <typename Visit>
void each_pair(const Problem& problem, Visit visit) {
  std::vector<Index> live;
  for (const Index b : sorted_by_key(problem.count(), [&](std::size_t i) { return problem.lower[i]; })) {
    std::erase_if(live, [&](Index other) { return problem.upper[at(other)] <= problem.lower[at(b)]; });
    for (const Index other : live)
      if (!visit(b, other)) return;
    live.push_back(b);
  }
}

/// Whether the pairs of buffers alive together are few enough to be listed.
bool has_few_pairs(const Problem& problem);

enum class Fit : std::uint8_t { first, best };

/// Called now and then: whether to abandon a placement because the time is over.
using Stop = std::function<bool()>;

/// The tightest gap for each buffer, in the order in which they begin, or from the last end backwards, larger ones
/// first: as an allocator would that sees one request after another. O(n log n), so that there always is a plan.
void place_over_time(const Problem& problem, bool backwards, Placement& out);

/// Places buffers at gaps between those placed before. Keeps its memory from call to call.
class GapPlacer {
 public:
  explicit GapPlacer(const Problem& problem) : problem_(problem) {}

  /// Lists which buffers are alive together, if these are few for so many buffers: then placing needs a small part of
  /// the time. False where they are not.
  bool list_neighbours();

  /// Places `order`, which has every buffer once, into `out`. Stops, with a height of 2^64 - 1, where an end would pass
  /// `most`, or where `stop` says so.
  void place(std::span<const Index> order, Fit fit, std::uint64_t most, Placement& out, const Stop& stop = {});

 private:
  /// Neighbours by offset. An empty slot is alive with nothing, so that all slots can be compared without a branch.
  struct Block {
    static constexpr std::size_t kSlots = 64;
    Index lower[kSlots], upper[kSlots];
    std::uint64_t offset[kSlots], end[kSlots];
    std::size_t count = 0;
    Block();
    void insert(std::size_t slot, Index from, Index to, std::uint64_t bottom, std::uint64_t top);
    void split_into(Block& upper_half);
  };
  std::uint64_t find_gap(Index buffer, Fit fit) const;
  std::uint64_t find_gap_among_neighbours(Index buffer, Fit fit, const Placement& out);
  void insert(Index buffer, std::uint64_t offset);

  const Problem& problem_;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> by_offset_;                        // numbers of blocks
  std::vector<std::vector<Index>> neighbours_;                  // by buffer; none where they are not listed
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken_;  // by neighbours: offsets and ends
};

/// Rates how well a waiting buffer suits a segment of the skyline: the largest sum wins.
struct SkylineWeights {
  double life = 1.0;  ///< times ln(lifetime)
  double size = 0.3;  ///< times ln(size)
  double edge = 2.0;  ///< for each end of its life that is the segment's end: no sliver of time stays
  double both_edges = 2.0;
  double flush = 1.0;  ///< its top is level with a neighbour it touches: the skyline gets smoother
};

/// Fills a skyline over time: always at its lowest segment, with the waiting buffer that fits best into the segment's
/// time; where none fits, the segment is raised to its lower neighbour, and what lies below is lost. Keeps its memory
/// from call to call.
class SkylinePlacer {
 public:
  explicit SkylinePlacer(const Problem& problem);

  /// Places all buffers; `keys` are added to their weights. Stops, with a height of 2^64 - 1, as soon as it is certain
  /// that the height passes `most`: where what is lost, placed and still waiting at one time is more; or where `stop`
  /// says so.
  void place(const SkylineWeights& weights, std::span<const double> keys, std::uint64_t most, Placement& out,
             const Stop& stop = {});

 private:
  struct SkylineSegment {
    Index begin, end;
    std::uint64_t height;
  };
  /// The best waiting buffer so far, by its position.
  struct Choice {
    std::size_t position = std::numeric_limits<std::size_t>::max();
    double value = -std::numeric_limits<double>::infinity();
    void consider(std::size_t other, double its_value);
  };
  static constexpr std::size_t kBlock = 64;

  void start(const SkylineWeights& weights, std::span<const double> keys);
  std::size_t lowest();
  void add_to_heap(std::size_t place);
  std::size_t choose(std::size_t place, const SkylineWeights& weights) const;
  void choose_inside(std::size_t begin, std::size_t end, Index before, Choice& choice) const;
  void remove_waiting(std::size_t position);
  void look_over(std::size_t block);
  bool raise(std::size_t place, std::uint64_t most);
  void put(std::size_t place, Index buffer);
  std::uint64_t height_before(std::size_t place) const;
  std::uint64_t height_after(std::size_t place) const;

  const Problem& problem_;
  std::vector<double> log_life_, log_size_;
  std::vector<std::uint64_t> live_;                           // by time
  std::vector<std::uint64_t> needed_;                         // by time: lost, placed and waiting bytes
  std::vector<Index> by_lower_;                               // its indices are positions
  std::vector<std::size_t> ending_;                           // positions, by the time at which they end
  std::vector<std::size_t> first_of_lower_, first_of_upper_;  // by time: in by_lower_ and ending_
  std::vector<Index> upper_;                                  // by position; of a placed buffer after all times
  std::vector<double> value_;                                 // by position
  std::vector<Index> least_upper_;                            // by block of positions: of those that wait
  std::vector<double> most_value_;
  std::vector<SkylineSegment> skyline_;
  // Finds a long skyline's lowest segment: heights and begins, the lowest on top, of segments that are there or were.
  std::vector<std::pair<std::uint64_t, Index>> heap_;
  bool has_heap_;
};

}  // namespace bantam::planner
