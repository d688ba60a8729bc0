// Checks which sums an exchange accepts, and counts the bytes of their spans.
#include "bantam/kernels/exchange/rank_sums.h"

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::kernels {

std::uint64_t bytes_of(std::span<const SumSpan> spans) {
  std::uint64_t bytes = 0;
  for (const SumSpan& span : spans)
    bytes += (static_cast<std::uint64_t>(span.elements) * size_of(span.dtype) + 15) / 16 * 16;
  return bytes;
}

void check_exchange(const SumTree& tree, std::span<const SumSpan> spans) {
  constexpr std::size_t kMostSpans = 4;
  if (tree.sums < 1 || tree.sums > SumTree::kMostSums || tree.ranks < 1 || tree.ranks > SumTree::kMostRanks)
    throw Error(fmt::format("exchange of sums: expected at most {} partial sums of {} ranks, got {} of {}",
                            SumTree::kMostSums, SumTree::kMostRanks, tree.sums, tree.ranks));
  if (spans.size() > kMostSpans)
    throw Error(fmt::format("exchange of sums: expected at most {} spans, got {}", kMostSpans, spans.size()));
  for (const SumSpan& span : spans) {
    if (span.dtype != DType::float32 && span.dtype != DType::float64 && span.dtype != DType::float16)
      throw Error(fmt::format("exchange of sums: expected float32, float64 or float16, got {}", to_string(span.dtype)));
    if (span.offset % 16 != 0) throw Error("exchange of sums: a span begins at a multiple of 16 bytes");
  }
}

}  // namespace bantam::kernels
