#include "bantam/base/stable_sort.h"

#include <algorithm>
#include <numeric>

namespace bantam {

std::vector<std::size_t> stable_order(std::size_t count,
                                      bool (*before)(const void* context, std::size_t a, std::size_t b),
                                      const void* context) {
  std::vector<std::size_t> places(count);
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) { return before(context, a, b); });
  return places;
}

}  // namespace bantam
