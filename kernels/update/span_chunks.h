// Spans of an arena cut into chunks: for rules that need a norm of each parameter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bantam::kernels {

/// Neighbouring weight blocks of one span, which are added up together.
struct SpanChunk {
  std::int32_t weight_block = 0, weight_blocks = 0;  ///< the first, and how many
  std::int32_t first = 0, chunks = 0;                ///< of the span: its first chunk's index, and how many it has
};

/// Most chunks of a span, so that one thread block can add up their sums.
inline constexpr std::int32_t kMostChunksOfSpan = 256;

/// Chunks in device memory, and the workspace of their sums.
struct SpanChunks {
  const SpanChunk* list = nullptr;  ///< (count)
  std::int32_t count = 0;
  std::int64_t weight_blocks = 0;  ///< of all chunks
  double* sums = nullptr;          ///< (count, 2): contents are undefined before and after
};

/// Chunks of the spans for which `wanted` is not 0, in the spans' order. Depends on its arguments only.
std::vector<SpanChunk> cut_spans(std::span<const std::int32_t> span_of_weight_block,
                                 std::span<const std::uint8_t> wanted);

}  // namespace bantam::kernels
