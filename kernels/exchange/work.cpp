// Work of sums finished among ranks. What crosses the links is counted as bytes of this device: each partial sum of a
// share is read once, and its root written to every rank.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/exchange/rank_sums.h"

namespace bantam::kernels::work {

void exchange_sums(const Exec& exec, const SumTree& tree, const RankRegions&, std::span<const SumSpan> spans, int) {
  const auto bytes = static_cast<std::int64_t>(bytes_of(spans));
  note(exec, "exchange_sums", {.bytes = (tree.sums + tree.ranks) * bytes / tree.ranks});
}

void add_rank_sums(const Exec& exec, const SumTree& tree, DType dtype, std::int64_t elements,
                   std::span<const void* const>, double, void*) {
  note(exec, "add_rank_sums", {.bytes = (tree.sums + 1) * static_cast<std::int64_t>(size_of(dtype)) * elements});
}

void meet_ranks(const Exec& exec, const SumTree& tree, const RankRegions&) {
  note(exec, "meet_ranks", {.bytes = 2 * 4 * std::int64_t{tree.ranks}});
}

}  // namespace bantam::kernels::work
