// Widening in place on CUDA: pass after pass the later half of what is left, whose floats lie over what was read in
// passes before.
#include <algorithm>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/update/cuda/narrow_gradients.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr std::int64_t kMostRest = 64;  // weight blocks that one block widens by itself

/// Weight blocks of a span that are narrow after `passes`. The floats of weight block k lie over the halves of weight
/// blocks 2k and 2k + 1: of k from ⌈left/2⌉ on, over none that is still to be read.
__host__ __device__ inline std::int64_t weight_blocks_left(NarrowGradients::Range range, int passes) {
  std::int64_t left = range.end - range.begin;
  for (int pass = 0; pass < passes; ++pass) left = (left + 1) / 2;
  return left;
}

/// By one warp. The first weight block lies over itself, and so is read before it is written.
__device__ inline void widen_weight_block(float* place, std::int64_t weight_block, DType dtype) {
  const std::int64_t quad = weight_block * kQuadsOfWeightBlock + threadIdx.x % kWarp;
  const GradientQuad narrow{load_narrow(place, quad), true};
  __syncwarp();
  reinterpret_cast<Pack<float, kQuad>*>(place)[quad] = narrow.wide(dtype);
}

/// Pass number `pass` of span blockIdx.y.
__global__ void __launch_bounds__(kThreads)
    widen_later_half(float* gradient, const __grid_constant__ NarrowGradients narrow, int pass, DType dtype) {
  const NarrowGradients::Range range = narrow.ranges[blockIdx.y];
  const std::int64_t left = weight_blocks_left(range, pass), warps = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t weight_block = (left + 1) / 2 + grid_thread() / kWarp; weight_block < left; weight_block += warps)
    widen_weight_block(gradient + range.begin * kWeightBlockSize, weight_block, dtype);
}

/// All further passes of span blockIdx.x.
__global__ void __launch_bounds__(kThreads)
    widen_rest(float* gradient, const __grid_constant__ NarrowGradients narrow, int passes, DType dtype) {
  const NarrowGradients::Range range = narrow.ranges[blockIdx.x];
  float* place = gradient + range.begin * kWeightBlockSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  std::int64_t left = weight_blocks_left(range, passes);
  for (; left > 1; left = (left + 1) / 2) {
    for (std::int64_t weight_block = (left + 1) / 2 + warp; weight_block < left; weight_block += kWarps)
      widen_weight_block(place, weight_block, dtype);
    __syncthreads();
  }
  if (warp == 0 && left == 1) widen_weight_block(place, 0, dtype);
}

}  // namespace

void widen_gradients(const Exec& exec, float* gradient, const NarrowGradients& narrow, DType dtype) {
  if (narrow.count == 0) return;
  constexpr std::int64_t kMostBlocks = 128;  // a span gets no more
  const auto spans = static_cast<unsigned>(narrow.count);
  int passes = 0;
  for (;; ++passes) {
    std::int64_t most = 0;
    for (unsigned r = 0; r < spans; ++r) most = std::max(most, weight_blocks_left(narrow.ranges[r], passes));
    if (most <= kMostRest) break;
    const auto blocks = static_cast<unsigned>(std::min((most / 2 + kWarps - 1) / kWarps, kMostBlocks));
    widen_later_half<<<dim3(blocks, spans), kThreads, 0, stream_of(exec)>>>(gradient, narrow, passes, dtype);
    check_launch("widen_later_half");
  }
  widen_rest<<<spans, kThreads, 0, stream_of(exec)>>>(gradient, narrow, passes, dtype);
  check_launch("widen_rest");
}

}  // namespace bantam::kernels::cuda
