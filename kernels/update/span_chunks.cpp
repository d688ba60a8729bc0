// How spans are cut into chunks: by their weight blocks only, so that sums have the same bits everywhere.
#include "bantam/kernels/update/span_chunks.h"

#include <algorithm>

namespace bantam::kernels {

static_assert(sizeof(SpanChunk) == 16);

namespace {

constexpr std::int32_t kLeastWeightBlocks = 16;

void cut(std::int32_t begin, std::int32_t end, std::vector<SpanChunk>& chunks) {
  const std::int32_t weight_blocks = end - begin;
  const std::int32_t most = std::max(kLeastWeightBlocks, (weight_blocks + kMostChunksOfSpan - 1) / kMostChunksOfSpan);
  const auto first = static_cast<std::int32_t>(chunks.size());
  const std::int32_t count = (weight_blocks + most - 1) / most;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t at = begin + i * most;
    chunks.push_back({.weight_block = at, .weight_blocks = std::min(most, end - at), .first = first, .chunks = count});
  }
}

}  // namespace

std::vector<SpanChunk> cut_spans(std::span<const std::int32_t> span_of_weight_block,
                                 std::span<const std::uint8_t> wanted) {
  std::vector<SpanChunk> chunks;
  for (std::size_t begin = 0; begin < span_of_weight_block.size();) {
    const std::int32_t span = span_of_weight_block[begin];
    std::size_t end = begin;
    while (end < span_of_weight_block.size() && span_of_weight_block[end] == span) ++end;
    if (wanted[static_cast<std::size_t>(span)] != 0)
      cut(static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end), chunks);
    begin = end;
  }
  return chunks;
}

}  // namespace bantam::kernels
