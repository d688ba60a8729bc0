// Hard instances for the planner: a rectangle of capacity x time, cut into buffers, so that a full plan is known.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/memory/planner.h"

namespace bantam::testing {

struct HardInstance {
  std::vector<PlannerBuffer> buffers{};
  std::uint64_t capacity = 0;  ///< they all fit into it
  std::int64_t times = 0;
};

/// What makes it hard to see how the pieces belong together.
struct CutOptions {
  std::int64_t times = 10'000;  ///< few: many cuts through one time
  bool trim_lifetimes = false;  ///< up to 5 % off the lifetime of every other piece, too
};

/// Cuts [0, times) x [0, capacity) again and again, through time or through space, until there are `count` pieces; then
/// takes up to 5 % off the size of every other one, and shuffles. The pieces fill 96 to 99 % of the rectangle.
inline HardInstance cut_rectangle(std::uint64_t seed, std::size_t count, std::uint64_t capacity,
                                  const CutOptions& options = {}) {
  struct Piece {
    std::int64_t begin, end;
    std::uint64_t bottom, top;
    double area() const { return static_cast<double>(end - begin) * static_cast<double>(top - bottom); }
  };
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  std::vector<Piece> pieces{{0, options.times, 0, capacity}};
  while (pieces.size() < count) {
    std::size_t chosen = random.below(pieces.size());  // the largest of three
    for (int other = 0; other < 2; ++other)
      if (const std::size_t i = random.below(pieces.size()); pieces[i].area() > pieces[chosen].area()) chosen = i;
    Piece piece = pieces[chosen];
    const double share = random.uniform(0.15f, 0.85f);
    if (random.below(2) == 0) {
      const auto middle = piece.begin + static_cast<std::int64_t>(share * static_cast<double>(piece.end - piece.begin));
      if (middle <= piece.begin) continue;
      pieces[chosen].end = piece.begin = middle;
    } else {
      const auto middle =
          piece.bottom + static_cast<std::uint64_t>(share * static_cast<double>(piece.top - piece.bottom));
      if (middle <= piece.bottom) continue;
      pieces[chosen].top = piece.bottom = middle;
    }
    pieces.push_back(piece);
  }
  HardInstance instance{.capacity = capacity, .times = options.times};
  for (Piece& piece : pieces) {
    std::uint64_t size = piece.top - piece.bottom;
    if (random.below(2) == 0)
      size -= static_cast<std::uint64_t>(static_cast<double>(size) * random.uniform(0.0f, 0.05f));
    if (options.trim_lifetimes && random.below(2) == 0) {
      const auto trimmed =
          static_cast<std::int64_t>(static_cast<double>(piece.end - piece.begin) * random.uniform(0.0f, 0.05f));
      if (random.below(2) == 0)
        piece.begin += trimmed;
      else
        piece.end -= trimmed;
    }
    instance.buffers.push_back({static_cast<std::int64_t>(instance.buffers.size()), piece.begin, piece.end, size});
  }
  for (std::size_t i = instance.buffers.size(); i-- > 1;)
    std::swap(instance.buffers[i], instance.buffers[random.below(i + 1)]);
  return instance;
}

/// Share of the rectangle that the buffers fill.
inline double fill(const HardInstance& instance) {
  double area = 0;
  for (const PlannerBuffer& b : instance.buffers)
    area += static_cast<double>(b.upper - b.lower) * static_cast<double>(b.size);
  return area / (static_cast<double>(instance.times) * static_cast<double>(instance.capacity));
}

}  // namespace bantam::testing
