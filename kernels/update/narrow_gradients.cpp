// The ordered list of narrow spans.
#include "bantam/kernels/update/narrow_gradients.h"

#include <algorithm>
#include <string>

#include "bantam/base/error.h"

namespace bantam::kernels {

static_assert((NarrowGradients::kMost & (NarrowGradients::kMost - 1)) == 0, "the search halves");

void NarrowGradients::add(Range range) {
  if (count >= kMost) throw Error("narrow gradients: there is room for " + std::to_string(kMost) + " spans only");
  std::int32_t at = count++;
  for (; at > 0 && ranges[at - 1].begin > range.begin; --at) ranges[at] = ranges[at - 1];
  ranges[at] = range;
}

bool NarrowGradients::remove(std::int64_t begin) {
  Range* const end = ranges + count;
  Range* const found = std::find_if(ranges, end, [begin](const Range& range) { return range.begin == begin; });
  if (found == end) return false;
  std::copy(found + 1, end, found);
  ranges[--count] = {};
  return true;
}

}  // namespace bantam::kernels
