// The GPU by whose size work is cut.
#pragma once

#include <cstdint>

namespace bantam {

/// Multiprocessors of the GPU (an H200) by which kernels cut their work into parts, on whatever GPU they run: how many
/// parts a sum has is part of its result, and results must not depend on the card.
inline constexpr std::int64_t kReferenceMultiprocessors = 132;

}  // namespace bantam
