// Internal: where the next pages go: the address range that holds a request with the fewest new pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bantam {

/// An address range that a request may use; the next one of the run begins where it ends.
struct PageSegment {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool costs = false;  ///< its pages count; it begins and ends on pages. Else it is memory that is there and free
};

/// A choice: the request lies in [begin, end), and the pages of segments that cost, within, are `cost_bytes`.
struct PageWindow {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t cost_bytes = 0;
  bool found() const { return begin != end; }
};

/// The window of at least `bytes` in `run` (segments without gaps between them, by address) that costs least, of equals
/// the lowest; not found() where the run is too short.
///
/// Only windows that begin where a segment does, or end where one does, are looked at: any other can be moved to one of
/// these without meeting a new page.
PageWindow cheapest_window(std::span<const PageSegment> run, std::size_t bytes, std::size_t page_bytes);

/// The better of two: found, costs less, lies lower.
const PageWindow& better_window(const PageWindow& a, const PageWindow& b);

}  // namespace bantam
