// Internal: one placement of buffers: at gaps in a given order, or on a skyline from below.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace bantam::planner {

using Index = std::int32_t;

/// Buffers of some size, with times numbered 0 … `times` - 1 and sizes rounded up to the alignment.
struct Problem {
  std::vector<Index> lower, upper;
  std::vector<std::uint64_t> size;
  std::vector<std::int64_t> time;  ///< by number: in the caller's unit
  Index times = 0;
  std::uint64_t alignment = 1;  ///< of offsets; sizes are multiples of it
  std::uint64_t max_live = 0;   ///< of the rounded sizes: a lower bound of the arena
  std::size_t count() const { return size.size(); }
};

/// Where buffers lie, by index, and the highest end.
struct Placement {
  std::vector<std::uint64_t> offset;
  std::uint64_t height = std::numeric_limits<std::uint64_t>::max();
};

enum class Fit : std::uint8_t { first, best };

/// Places buffers at gaps between those placed before. Keeps its memory from call to call.
class GapPlacer {
 public:
  explicit GapPlacer(const Problem& problem) : problem_(problem) {}

  /// Places `order`, which has every buffer once, into `out`. Stops, with a height of 2^64 - 1, where an end would pass
  /// `most`.
  void place(std::span<const Index> order, Fit fit, std::uint64_t most, Placement& out);

 private:
  struct Placed {
    std::uint64_t offset, end;
    Index lower, upper;
  };
  std::uint64_t find_gap(Index buffer, Fit fit) const;

  const Problem& problem_;
  std::vector<Placed> placed_;  // by offset
};

/// What makes a waiting buffer the right one for a stretch of the skyline: the largest sum wins.
struct SkylineWeights {
  double life = 1.0;  ///< times ln(lifetime)
  double size = 0.3;  ///< times ln(size)
  double edge = 2.0;  ///< for each end of its life that is the stretch's end: no sliver of time stays
  double both_edges = 2.0;
  double flush = 1.0;  ///< its top is level with a neighbour it touches: the skyline gets smoother
};

/// Fills a skyline over time: always at its lowest stretch, with the waiting buffer that fits best into the stretch's
/// time; where none fits, the stretch is raised to its lower neighbour, and what lies below is lost. Keeps its memory
/// from call to call.
class SkylinePlacer {
 public:
  explicit SkylinePlacer(const Problem& problem);

  /// Places all buffers; `keys` are added to their weights. Stops, with a height of 2^64 - 1, as soon as it is certain
  /// that the height passes `most`: where what is lost, placed and still waiting at one time is more.
  void place(const SkylineWeights& weights, std::span<const double> keys, std::uint64_t most, Placement& out);

 private:
  struct Stretch {
    Index begin, end;
    std::uint64_t height;
  };
  std::size_t lowest() const;
  std::size_t choose(std::size_t at, const SkylineWeights& weights) const;
  bool raise(std::size_t at, std::uint64_t most);
  void put(std::size_t at, Index buffer);
  std::uint64_t height_before(std::size_t at) const;
  std::uint64_t height_behind(std::size_t at) const;

  const Problem& problem_;
  std::vector<double> log_life_, log_size_, value_;
  std::vector<std::uint64_t> live_;    // by time
  std::vector<std::uint64_t> needed_;  // by time: lost, placed and waiting bytes
  std::vector<Index> by_lower_, waiting_;
  std::vector<Stretch> skyline_;
};

}  // namespace bantam::planner
