// Stable sorts of lists that no step waits for: one copy of the algorithm, instead of some 4 KB of code for each type
// and order.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace bantam {

/// The places 0 to `count` - 1, ordered: `before(context, a, b)` says whether a comes before b. Of two that are equal,
/// the lower first.
std::vector<std::size_t> stable_order(std::size_t count,
                                      bool (*before)(const void* context, std::size_t a, std::size_t b),
                                      const void* context);

/// The places of `values` in the order in which std::ranges::stable_sort would put them; `values` stay as they are.
template <class T, class Compare = std::ranges::less, class Projection = std::identity>
std::vector<std::size_t> stable_order(const std::vector<T>& values, Compare compare = {}, Projection projection = {}) {
  const auto before = [&](std::size_t a, std::size_t b) {
    return std::invoke(compare, std::invoke(projection, values[a]), std::invoke(projection, values[b]));
  };
  return stable_order(
      values.size(),
      [](const void* context, std::size_t a, std::size_t b) {
        return static_cast<bool>((*static_cast<decltype(before)*>(context))(a, b));
      },
      &before);
}

/// std::ranges::stable_sort of a vector, for lists of no more than some thousands: an order of places, then each value
/// moved once.
template <class T, class Compare = std::ranges::less, class Projection = std::identity>
void sort_stably(std::vector<T>& values, Compare compare = {}, Projection projection = {}) {
  std::vector<T> sorted;
  sorted.reserve(values.size());
  for (const std::size_t place : stable_order(values, compare, projection)) sorted.push_back(std::move(values[place]));
  values = std::move(sorted);
}

}  // namespace bantam
