// How spans are cut into chunks: by their granules only, so that sums have the same bits everywhere.
#include "bantam/kernels/update/span_chunks.h"

#include <algorithm>

namespace bantam::kernels {

static_assert(sizeof(SpanChunk) == 16);

namespace {

constexpr std::int32_t kLeastGranules = 16;

void cut(std::int32_t begin, std::int32_t end, std::vector<SpanChunk>& chunks) {
  const std::int32_t granules = end - begin;
  const std::int32_t most = std::max(kLeastGranules, (granules + kMostChunksOfSpan - 1) / kMostChunksOfSpan);
  const auto first = static_cast<std::int32_t>(chunks.size());
  const std::int32_t count = (granules + most - 1) / most;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t at = begin + i * most;
    chunks.push_back({.granule = at, .granules = std::min(most, end - at), .first = first, .chunks = count});
  }
}

}  // namespace

std::vector<SpanChunk> cut_spans(std::span<const std::int32_t> span_of_granule, std::span<const std::uint8_t> wanted) {
  std::vector<SpanChunk> chunks;
  for (std::size_t begin = 0; begin < span_of_granule.size();) {
    const std::int32_t span = span_of_granule[begin];
    std::size_t end = begin;
    while (end < span_of_granule.size() && span_of_granule[end] == span) ++end;
    if (wanted[static_cast<std::size_t>(span)] != 0)
      cut(static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end), chunks);
    begin = end;
  }
  return chunks;
}

}  // namespace bantam::kernels
