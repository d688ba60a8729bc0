// Masks and pruned weights on the CPU: a tensor's threshold by counting its magnitudes digit by digit, exactly.
#include "bantam/kernels/update/pruning.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/update/pruning_rules.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kWeightBlocksOfPart = 64;

std::uint32_t magnitude(float w) { return std::bit_cast<std::uint32_t>(w) & 0x7fffffffu; }

/// The `rank`-th largest magnitude, `rank` from 1.
std::uint32_t magnitude_of_rank(const float* w, std::int64_t elements, std::int64_t rank) {
  std::uint32_t found = 0;
  for (int d = 0; d < kMagnitudeDigits; ++d) {
    const MagnitudeDigit digit = magnitude_digit(d);
    std::int64_t counts[kMagnitudeBins] = {};
    for (std::int64_t i = 0; i < elements; ++i)
      if (const std::uint32_t m = magnitude(w[i]); digit.follows(m, found)) ++counts[digit.of(m)];
    std::uint32_t bin = (1u << digit.bits) - 1;
    for (; bin > 0 && counts[bin] < rank; --bin) rank -= counts[bin];
    found |= bin << digit.shift;
  }
  return found;
}

void make_mask(const PruneRule& rule, const PruneArena& arena, const PrunedTensor& tensor, double sparsity) {
  const float* w = arena.weights + tensor.begin;
  std::uint8_t* mask = arena.mask + tensor.begin;
  if (rule.pattern == PrunePattern::two_of_four) {
    for (std::int64_t i = 0; i < tensor.elements; i += 4) {
      const std::uint32_t four = two_of_four_mask({w[i], w[i + 1], w[i + 2], w[i + 3]});
      for (int k = 0; k < 4; ++k) mask[i + k] = static_cast<std::uint8_t>(four >> (8 * k) & 1);
    }
    return;
  }
  const std::uint32_t least = magnitude_of_rank(w, tensor.elements, weights_kept(tensor.elements, sparsity));
  for (std::int64_t i = 0; i < tensor.elements; ++i) mask[i] = magnitude(w[i]) >= least ? 1 : 0;
}

/// Zeros where `mask` is 0, and what lies there where it is 1.
void apply_mask(const std::uint8_t* mask, float* values) {
#pragma omp simd
  for (std::int64_t i = 0; i < kWeightBlockSize; ++i) values[i] = mask[i] != 0 ? values[i] : 0.0f;
}

void mask_weight_block(const PruneArena& arena, std::int64_t weight_block, bool changed) {
  const std::int64_t begin = weight_block * kWeightBlockSize;
  const std::uint8_t* mask = arena.mask + begin;
  apply_mask(mask, arena.weights + begin);
  if (changed && arena.average != nullptr) apply_mask(mask, arena.average + begin);
  if (arena.compute == nullptr) return;
  for (std::int64_t i = 0; i < kWeightBlockSize; ++i)
    if (mask[i] == 0)
      std::memset(element(arena.compute, arena.compute_dtype, begin + i), 0, size_of(arena.compute_dtype));
}

}  // namespace

void prune_weights(const Exec& exec, const PruneRule& rule, const PruneArena& arena, const UpdateControl* control) {
  if (control->found_nonfinite != 0) return;
  const bool change = masks_change(rule, control->updates);
  if (change) {
    const double sparsity = sparsity_at(rule, control->updates);
    parallel_parts(arena.tensor_count, exec.threads,
                   [&](std::int64_t t) { make_mask(rule, arena, arena.tensors[t], sparsity); });
  }
  parallel_ranges(arena.weight_blocks, kWeightBlocksOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) mask_weight_block(arena, arena.weight_block_list[i], change);
  });
}

}  // namespace bantam::kernels::cpu
