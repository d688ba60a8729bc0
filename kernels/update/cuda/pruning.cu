// Masks and pruned weights on CUDA in one kernel: at most updates a pass over masks and weights; where masks change, a
// block a tensor, which finds the tensor's threshold by counting magnitudes digit by digit in shared memory.
#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/update/cuda/quads.cuh"
#include "bantam/kernels/update/pruning.h"
#include "bantam/kernels/update/pruning_rules.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 1024;  // one block has a large tensor for itself where masks change
constexpr int kWarp = 32;
constexpr std::uint32_t kAllKept = 0x01010101u;

__device__ inline std::uint32_t magnitude(float w) { return __float_as_uint(w) & 0x7fffffffu; }

/// Whether weight k of four neighbours is kept: `mask` has a byte for each.
__device__ inline bool kept(std::uint32_t mask, int k) { return (mask >> (8 * k) & 0xffu) != 0; }

__device__ inline void zero_masked(std::uint32_t mask, float* values, std::int64_t quad) {
  Quad w = load_quad(values, quad);
#pragma unroll
  for (int k = 0; k < kQuad; ++k) w.v[k] = kept(mask, k) ? w.v[k] : 0.0f;
  quad_at(values, quad) = w;
}

/// The copies' values need not be known: what is not zeroed is right.
__device__ inline void zero_masked_copies(const PruneArena& arena, std::uint32_t mask, std::int64_t quad) {
#pragma unroll
  for (int k = 0; k < kQuad; ++k) {
    if (kept(mask, k)) continue;
    if (arena.compute_dtype == DType::float32)
      static_cast<float*>(arena.compute)[quad * kQuad + k] = 0.0f;
    else
      static_cast<std::uint16_t*>(arena.compute)[quad * kQuad + k] = 0;
  }
}

__device__ inline void apply_mask(const PruneArena& arena, std::uint32_t mask, std::int64_t quad) {
  if (mask == kAllKept) return;
  zero_masked(mask, arena.weights, quad);
  if (arena.compute != nullptr) zero_masked_copies(arena, mask, quad);
}

__device__ void apply_masks(const PruneArena& arena) {
  for (std::int64_t i = grid_thread(); i < arena.weight_blocks * kQuadsOfWeightBlock; i += grid_threads()) {
    const std::int64_t quad =
        arena.weight_block_list[i / kQuadsOfWeightBlock] * kQuadsOfWeightBlock + i % kQuadsOfWeightBlock;
    apply_mask(arena, __ldcg(reinterpret_cast<const std::uint32_t*>(arena.mask) + quad), quad);
  }
}

/// A block's search for a rank.
struct RankSearch {
  unsigned counts[kMagnitudeBins];
  long long rank;       // from the largest of those whose digits so far are `found`
  std::uint32_t found;  // digits so far
};

/// The bin that holds the rank, from the highest; by one warp, whose lanes have equal shares of the bins.
__device__ void find_bin(RankSearch& search, MagnitudeDigit digit) {
  const int lane = static_cast<int>(threadIdx.x), share = (1 << digit.bits) / kWarp;
  const int first = (1 << digit.bits) - 1 - lane * share;  // this lane's first bin; it goes down from there
  long long sum = 0;
  for (int i = 0; i < share; ++i) sum += search.counts[first - i];
  long long until = sum;
  for (int step = 1; step < kWarp; step *= 2) {
    const long long before = __shfl_up_sync(0xffffffffu, until, step);
    if (lane >= step) until += before;
  }
  const long long rank = search.rank - (until - sum);
  __syncwarp();
  if (rank < 1 || rank > sum) return;
  int bin = first;
  long long rest = rank;
  for (; search.counts[bin] < rest; --bin) rest -= search.counts[bin];
  search.rank = rest;
  search.found |= static_cast<std::uint32_t>(bin) << digit.shift;
}

/// The `rank`-th largest magnitude, from 1, of `elements` weights; by all threads of a block.
__device__ std::uint32_t magnitude_of_rank(const float* w, std::int64_t elements, std::int64_t rank) {
  __shared__ RankSearch search;
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // all threads are done with the tensor before
  if (thread == 0) search.rank = rank, search.found = 0;
  for (int d = 0; d < kMagnitudeDigits; ++d) {
    const MagnitudeDigit digit = magnitude_digit(d);
    for (int bin = thread; bin < (1 << digit.bits); bin += kThreads) search.counts[bin] = 0;
    __syncthreads();
    const std::uint32_t found = search.found;
    for (std::int64_t i = thread; i < elements; i += kThreads)
      if (const std::uint32_t m = magnitude(__ldcg(w + i)); digit.follows(m, found))
        atomicAdd(&search.counts[digit.of(m)], 1u);
    __syncthreads();
    if (thread < kWarp) find_bin(search, digit);
    __syncthreads();
  }
  return search.found;
}

/// A tensor's new mask, and what follows from it; by one block.
__device__ void change_mask(const PruneRule& rule, const PruneArena& arena, const PrunedTensor& tensor,
                            double sparsity) {
  const bool four = rule.pattern == PrunePattern::two_of_four;
  const float* w = arena.weights + tensor.begin;
  const std::uint32_t least = four ? 0 : magnitude_of_rank(w, tensor.elements, weights_kept(tensor.elements, sparsity));
  for (std::int64_t i = threadIdx.x; i < (tensor.elements + kQuad - 1) / kQuad; i += kThreads) {
    const std::int64_t quad = tensor.begin / kQuad + i;
    const Quad values = load_quad(arena.weights, quad);
    std::uint32_t mask = four ? two_of_four_mask(values.v) : 0;
    for (int k = 0; k < kQuad && !four; ++k)  // padding stays as it was made: zeros, and kept
      if (magnitude(values.v[k]) >= least || i * kQuad + k >= tensor.elements) mask |= 1u << (8 * k);
    reinterpret_cast<std::uint32_t*>(arena.mask)[quad] = mask;
    apply_mask(arena, mask, quad);
    if (arena.average != nullptr && mask != kAllKept) zero_masked(mask, arena.average, quad);
  }
}

__global__ void __launch_bounds__(kThreads)
    prune_weights_kernel(const __grid_constant__ PruneRule rule, const __grid_constant__ PruneArena arena,
                         const UpdateControl* control) {
  wait_then_let_next_start();  // for weights, and control
  if (control->found_nonfinite != 0) return;
  const std::int64_t t = control->updates;
  if (!masks_change(rule, t)) return apply_masks(arena);
  for (std::int64_t i = blockIdx.x; i < arena.tensor_count; i += gridDim.x)
    change_mask(rule, arena, arena.tensors[i], sparsity_at(rule, t));
}

}  // namespace

void prune_weights(const Exec& exec, const PruneRule& rule, const PruneArena& arena, const UpdateControl* control) {
  if (arena.tensor_count <= 0) return;
  const unsigned blocks = std::max(stride_blocks(arena.weight_blocks * kQuadsOfWeightBlock, kThreads),
                                   static_cast<unsigned>(std::min<std::int64_t>(arena.tensor_count, 4096)));
  launch_early(exec, prune_weights_kernel, dim3(blocks), dim3(kThreads), rule, arena, control);
}

}  // namespace bantam::kernels::cuda
