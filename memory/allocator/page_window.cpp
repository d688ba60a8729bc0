// The cheapest window, by trying each segment as its first and as its last.
#include "bantam/memory/allocator/page_window.h"

#include <algorithm>

namespace bantam {
namespace {

// Returns the bytes of a segment that serve `bytes` which lie at one of its ends: to the byte, or in whole pages.
std::size_t used_of(const PageSegment& segment, std::size_t bytes, std::size_t page) {
  const std::size_t used = std::min(segment.bytes, bytes);
  return segment.costs ? used / page * page + (used % page != 0 ? page : 0) : used;
}

// Begins where run[first] does.
PageWindow window_from(std::span<const PageSegment> run, std::size_t first, std::size_t bytes, std::size_t page) {
  PageWindow window{run[first].begin, run[first].begin, 0};
  for (std::size_t i = first; i < run.size(); ++i) {
    const std::size_t used = used_of(run[i], bytes, page);
    if (run[i].costs) window.cost_bytes += used;
    window.end = run[i].begin + used;
    if (bytes <= used) return window;
    bytes -= used;
  }
  return {};
}

// Ends where run[last] does.
PageWindow window_to(std::span<const PageSegment> run, std::size_t last, std::size_t bytes, std::size_t page) {
  PageWindow window{0, run[last].begin + run[last].bytes, 0};
  for (std::size_t i = last + 1; i-- > 0;) {
    const std::size_t used = used_of(run[i], bytes, page);
    if (run[i].costs) window.cost_bytes += used;
    window.begin = run[i].begin + run[i].bytes - used;
    if (bytes <= used) return window;
    bytes -= used;
  }
  return {};
}

}  // namespace

const PageWindow& better_window(const PageWindow& a, const PageWindow& b) {
  if (a.found() != b.found()) return a.found() ? a : b;
  if (a.cost_bytes != b.cost_bytes) return a.cost_bytes < b.cost_bytes ? a : b;
  return b.begin < a.begin ? b : a;
}

PageWindow cheapest_window(std::span<const PageSegment> run, std::size_t bytes, std::size_t page_bytes) {
  PageWindow best;
  for (std::size_t i = 0; i < run.size(); ++i) {
    best = better_window(best, window_from(run, i, bytes, page_bytes));
    best = better_window(best, window_to(run, i, bytes, page_bytes));
  }
  return best;
}

}  // namespace bantam
