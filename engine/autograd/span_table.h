// Norms of parameters: the chunks of an arena's spans on the device, and the memory of their sums.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/kernels/update/span_chunks.h"

namespace bantam {

/// Chunks of some of an arena's spans, made once.
class SpanTable {
 public:
  SpanTable() = default;
  /// Cuts the spans whose `wanted` (in the order of ParameterArena::spans) is not 0. Allocates as `context` says.
  SpanTable(const Context& context, const ParameterArena& parameters, std::span<const std::uint8_t> wanted)
      : list_(kernels::cut_spans(parameters.span_of_weight_block(), wanted)) {
    if (list_.empty()) return;
    const auto count = static_cast<std::int64_t>(list_.size());
    for (const kernels::SpanChunk& chunk : list_) weight_blocks_ += chunk.weight_blocks;
    table_ = context.upload_bytes({count * static_cast<std::int64_t>(sizeof(list_[0]))}, DType::uint8, list_.data(),
                                  Category::optimizer);
    sums_ =
        context.allocate({2 * count * static_cast<std::int64_t>(sizeof(double))}, DType::uint8, Category::optimizer);
  }

  /// For a kernel.
  kernels::SpanChunks chunks() const {
    if (list_.empty()) return {};
    return {.list = table_.as<kernels::SpanChunk>(),
            .count = static_cast<std::int32_t>(list_.size()),
            .weight_blocks = weight_blocks_,
            .sums = sums_.as<double>()};
  }
  const std::vector<kernels::SpanChunk>& list() const { return list_; }

 private:
  std::vector<kernels::SpanChunk> list_;
  std::int64_t weight_blocks_ = 0;
  Tensor table_, sums_;
};

}  // namespace bantam
