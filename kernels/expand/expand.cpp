// Expanding convolutions by algebra: which shapes, and scratch memory.
#include "bantam/kernels/expand/expand.h"

#include <algorithm>

#include "bantam/kernels/expand/expand_parts.h"
#include "bantam/kernels/matmul/matmul.h"

namespace bantam::kernels {

bool expand_supports(const ExpandShape& s, DType dtype, ActivationFunction before, ActivationFunction after) {
  constexpr std::int64_t kMostIn = 512, kLeastRowsPerIn = 16;
  return is_half(dtype) && before.kind == Activation::relu && after.kind == Activation::relu && s.in > 0 &&
         s.in % 64 == 0 && s.in <= kMostIn && s.out % 128 == 0 && s.out >= 2 * s.in && s.rows >= kLeastRowsPerIn * s.in;
}

std::size_t expand_workspace_bytes(const ExpandShape& s, DType dtype, DeviceKind target) {
  return std::max({batch_norm_workspace_bytes({s.rows, s.in}, dtype, target) +
                       matmul_workspace_bytes(expand_gram_product(s), dtype, DType::float32, target),
                   target == DeviceKind::cuda ? ExpandCentreScratch(s).bytes : 0,
                   ExpandStatisticsScratch(s, target).bytes, expand_sum_workspace_bytes(s, dtype, target),
                   ExpandBackwardScratch(s, dtype, target).bytes});
}

}  // namespace bantam::kernels
