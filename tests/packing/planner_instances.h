// Hard instances for the planner: a rectangle of capacity x time that buffers fill almost, so that a full plan is
// known.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/packing/planner.h"

namespace bantam::testing {

struct HardInstance {
  std::vector<PlannerBuffer> buffers{};
  std::uint64_t capacity = 0;  ///< they all fit into it
  std::int64_t times = 0;
};

/// Share of the rectangle that the buffers fill.
inline double fill(const HardInstance& instance) {
  double area = 0;
  for (const PlannerBuffer& b : instance.buffers)
    area += static_cast<double>(b.upper - b.lower) * static_cast<double>(b.size);
  return area / (static_cast<double>(instance.times) * static_cast<double>(instance.capacity));
}

/// A part of the rectangle of capacity x time.
struct Rectangle {
  std::int64_t begin, end;
  std::uint64_t bottom, top;
  double area() const { return static_cast<double>(end - begin) * static_cast<double>(top - bottom); }
};

/// Up to 5 % off the size of every other rectangle, or off its lifetime too, at either end.
enum class Trim : std::uint8_t { none, sizes, sizes_and_lifetimes };

/// Rectangles as buffers in random order, trimmed.
inline HardInstance make_instance(std::vector<Rectangle> rectangles, std::int64_t times, std::uint64_t capacity,
                                  Trim trim, PhiloxSequence& random) {
  HardInstance instance{.capacity = capacity, .times = times};
  for (Rectangle& rectangle : rectangles) {
    std::uint64_t size = rectangle.top - rectangle.bottom;
    if (trim != Trim::none && random.below(2) == 0)
      size -= static_cast<std::uint64_t>(static_cast<double>(size) * random.uniform(0.0f, 0.05f));
    if (trim == Trim::sizes_and_lifetimes && random.below(2) == 0) {
      const auto trimmed =
          static_cast<std::int64_t>(static_cast<double>(rectangle.end - rectangle.begin) * random.uniform(0.0f, 0.05f));
      if (random.below(2) == 0)
        rectangle.begin += trimmed;
      else
        rectangle.end -= trimmed;
    }
    instance.buffers.push_back(
        {static_cast<std::int64_t>(instance.buffers.size()), rectangle.begin, rectangle.end, size});
  }
  for (std::size_t i = instance.buffers.size(); i-- > 1;)
    std::swap(instance.buffers[i], instance.buffers[random.below(i + 1)]);
  return instance;
}

/// How a rectangle is cut, again and again, always a large rectangle of those there are.
struct CutOptions {
  std::int64_t times = 10'000;  ///< few: many cuts through one time
  std::uint64_t unit = 1;       ///< sizes are multiples of it
  double pinwheels = 0;         ///< the share of cuts into five, in a spiral: no cut goes through
  float least_share = 0.15f;    ///< of a cut; near 0: lifetimes and sizes of very different lengths
  Trim trim = Trim::sizes;
};

/// Cuts [0, times) x [0, capacity) into `count` rectangles, or up to three more. Trimmed, they fill 96 to 99 % of it.
inline HardInstance cut_rectangle(std::uint64_t seed, std::size_t count, std::uint64_t capacity,
                                  const CutOptions& options = {}) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  const auto share = [&] { return random.uniform(options.least_share, 1.0f - options.least_share); };
  const auto time_in = [&](const Rectangle& p) {
    return p.begin + static_cast<std::int64_t>(share() * static_cast<double>(p.end - p.begin));
  };
  const auto space_in = [&](const Rectangle& p) {
    const double units = static_cast<double>((p.top - p.bottom) / options.unit);
    return p.bottom + static_cast<std::uint64_t>(share() * units) * options.unit;
  };
  std::vector<Rectangle> rectangles{{0, options.times, 0, capacity}};
  while (rectangles.size() < count) {
    std::size_t chosen = random.below(rectangles.size());  // the largest of three
    for (int other = 0; other < 2; ++other)
      if (const std::size_t i = random.below(rectangles.size()); rectangles[i].area() > rectangles[chosen].area())
        chosen = i;
    const Rectangle p = rectangles[chosen];
    if (random.uniform() < options.pinwheels) {
      std::int64_t t1 = time_in(p), t2 = time_in(p);
      const std::uint64_t left = space_in(p), right = space_in(p);  // where the walls at t1 and t2 end
      if (t1 > t2) std::swap(t1, t2);
      if (t1 == p.begin || t1 == t2 || left == p.bottom || right == p.bottom || left == right) continue;
      const bool rising = left < right;  // the rectangles at the bottom and the top: from the left, or from the right
      rectangles[chosen] = {t1, t2, std::min(left, right), std::max(left, right)};
      rectangles.push_back({rising ? p.begin : t1, rising ? t2 : p.end, p.bottom, rising ? left : right});
      rectangles.push_back({rising ? t2 : p.begin, rising ? p.end : t1, p.bottom, rising ? right : left});
      rectangles.push_back({rising ? t1 : p.begin, rising ? p.end : t2, rising ? right : left, p.top});
      rectangles.push_back({rising ? p.begin : t2, rising ? t1 : p.end, rising ? left : right, p.top});
    } else if (random.below(2) == 0) {
      const std::int64_t middle = time_in(p);
      if (middle == p.begin) continue;
      rectangles[chosen].end = middle;
      rectangles.push_back({middle, p.end, p.bottom, p.top});
    } else {
      const std::uint64_t middle = space_in(p);
      if (middle == p.bottom) continue;
      rectangles[chosen].top = middle;
      rectangles.push_back({p.begin, p.end, middle, p.top});
    }
  }
  return make_instance(std::move(rectangles), options.times, capacity, options.trim, random);
}

/// Rectangles laid into free space around random points of it, some as large as the space, until 95 % are filled. Drawn
/// again until there are 150 to 450.
inline HardInstance fill_holes(std::uint64_t seed, std::uint64_t capacity, std::int64_t times = 500) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  std::vector<Rectangle> rectangles;
  const double whole = static_cast<double>(capacity) * static_cast<double>(times);
  double filled = 0, largest = random.uniform(0.07f, 0.12f);  // of each side, where there is more room
  while (filled < 0.95 * whole || rectangles.size() < 150) {
    if (filled >= 0.95 * whole || rectangles.size() == 450) {
      rectangles.clear();
      filled = 0;
      largest = random.uniform(0.07f, 0.12f);
    }
    const auto t = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(times)));
    const std::uint64_t s = random.below(capacity);
    Rectangle room{0, times, 0, capacity};  // the gap at t around s, then its time
    bool taken = false;
    for (const Rectangle& p : rectangles) {
      if (p.begin > t || p.end <= t) continue;
      if (p.bottom <= s && s < p.top) taken = true;
      if (p.top <= s) room.bottom = std::max(room.bottom, p.top);
      if (p.bottom > s) room.top = std::min(room.top, p.bottom);
    }
    if (taken) continue;
    const auto most = static_cast<std::uint64_t>(largest * random.uniform(0.3f, 1.0f) * static_cast<double>(capacity));
    if (room.top - room.bottom > 2 * most) room.top = room.bottom + most;
    if (s < room.bottom || s >= room.top) continue;
    for (const Rectangle& p : rectangles) {
      if (p.bottom >= room.top || p.top <= room.bottom) continue;
      if (p.end <= t) room.begin = std::max(room.begin, p.end);
      if (p.begin > t) room.end = std::min(room.end, p.begin);
    }
    const auto longest = static_cast<std::int64_t>(largest * random.uniform(0.1f, 1.0f) * static_cast<double>(times));
    if (room.end - room.begin > 2 * longest) {
      room.begin =
          std::max(room.begin, t - static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(longest) + 1)));
      room.end = std::min(room.end, room.begin + longest + 1);
    }
    rectangles.push_back(room);
    filled += room.area();
  }
  return make_instance(std::move(rectangles), times, capacity, Trim::none, random);
}

/// A rectangle at its lowest offset above all `rectangles` that are alive with it and have no gap large enough below
/// them.
inline Rectangle first_fit(const std::vector<Rectangle>& rectangles, std::int64_t begin, std::int64_t end,
                           std::uint64_t size) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
  for (const Rectangle& p : rectangles)
    if (p.begin < end && begin < p.end) taken.emplace_back(p.bottom, p.top);
  std::sort(taken.begin(), taken.end());
  Rectangle rectangle{begin, end, 0, 0};
  for (const auto& [bottom, top] : taken)
    if (bottom < rectangle.bottom + size) rectangle.bottom = std::max(rectangle.bottom, top);
  rectangle.top = rectangle.bottom + size;
  return rectangle;
}

/// Adds the rectangle to the others, and its area to `filled`, where it lies within the capacity. True where 40 in a
/// row did not: smaller ones should follow.
inline bool keep_what_fits(std::vector<Rectangle>& rectangles, const Rectangle& rectangle, std::uint64_t capacity,
                           double& filled, int& refused) {
  if (rectangle.top <= capacity) {
    rectangles.push_back(rectangle);
    filled += rectangle.area();
    refused = 0;
  } else if (++refused == 40) {
    refused = 0;
    return true;
  }
  return false;
}

/// Random rectangles at their lowest free offsets, kept if they fit; smaller ones where many did not, until 95 % are
/// filled. Drawn again until there are 150 to 450.
inline HardInstance first_fit_strip(std::uint64_t seed, std::uint64_t capacity, std::int64_t times = 1000) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  const double whole = static_cast<double>(capacity) * static_cast<double>(times);
  std::vector<Rectangle> rectangles;
  double filled = whole;
  float scale = 0;
  for (int refused = 0; filled < 0.95 * whole || rectangles.size() < 150;) {
    if (filled >= 0.95 * whole || rectangles.size() == 450) {
      rectangles.clear();
      filled = 0;
      scale = random.uniform(0.3f, 0.6f);
    }
    const auto life = 1 + static_cast<std::int64_t>(random.uniform(0.1f, 1.0f) * scale * static_cast<float>(times));
    const auto size = 1 + static_cast<std::uint64_t>(random.uniform(0.1f, 1.0f) * scale * static_cast<float>(capacity));
    const std::int64_t begin = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(times))) - life / 2;
    const Rectangle rectangle =
        first_fit(rectangles, std::max<std::int64_t>(0, begin), std::min(times, begin + life), size);
    if (keep_what_fits(rectangles, rectangle, capacity, filled, refused)) scale *= 0.93f;
  }
  return make_instance(std::move(rectangles), times, capacity, Trim::none, random);
}

/// Buffers of heavy-tailed sizes (Pareto, of index 1.1: many small, few large) and random lifetimes among 50 times, at
/// their lowest free offsets, kept if they fit; smaller ones where many did not, until 95 % are filled. Drawn again
/// until there are 150 to 450.
inline HardInstance heavy_tailed_strip(std::uint64_t seed, std::uint64_t capacity, std::int64_t times = 50) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  const double whole = static_cast<double>(capacity) * static_cast<double>(times);
  std::vector<Rectangle> rectangles;
  double filled = whole, least = 0;
  for (int refused = 0; filled < 0.95 * whole || rectangles.size() < 150;) {
    if (filled >= 0.95 * whole || rectangles.size() == 450) {
      rectangles.clear();
      filled = 0;
      least = random.uniform(0.005f, 0.02f);
    }
    const double share = least * std::pow(1.0 - static_cast<double>(random.uniform()), -1.0 / 1.1);
    const auto size = 1 + static_cast<std::uint64_t>(std::min(share, 0.5) * static_cast<double>(capacity));
    const auto begin = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(times)));
    const auto life = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(times) / 2));
    const Rectangle rectangle = first_fit(rectangles, begin, std::min(times, begin + life), size);
    if (keep_what_fits(rectangles, rectangle, capacity, filled, refused)) least *= 0.93;
  }
  return make_instance(std::move(rectangles), times, capacity, Trim::none, random);
}

/// A trace of `sections` one after another, of about as many buffers each, like those of compilers: no buffer crosses
/// from one to the next, each fills all of the capacity, and all sizes are multiples of `unit`.
inline HardInstance sectioned_trace(std::uint64_t seed, std::size_t sections, std::size_t buffers_each,
                                    std::uint64_t capacity, std::uint64_t unit) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test, 1));
  std::vector<Rectangle> rectangles;
  std::int64_t begin = 0;
  for (std::size_t section = 0; section < sections; ++section) {
    const CutOptions options{.times = 20 + static_cast<std::int64_t>(random.below(100)),
                             .unit = unit,
                             .pinwheels = random.uniform(0.0f, 0.5f),
                             .trim = Trim::none};
    const HardInstance part = cut_rectangle(mix64(seed * 1000 + section), buffers_each, capacity, options);
    for (const PlannerBuffer& b : part.buffers) rectangles.push_back({begin + b.lower, begin + b.upper, 0, b.size});
    begin += options.times;
  }
  return make_instance(std::move(rectangles), begin, capacity, Trim::none, random);
}

}  // namespace bantam::testing
