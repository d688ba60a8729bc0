// The fused head's small part, one kernel: hidden units from their parts, logits, loss and metrics, and the gradients
// down to the hidden units. A warp computes all of a sample (classifier_head_sample.cuh); what concerns all samples of
// a block follows after one barrier.
#pragma once

#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/last_block.cuh"
#include "bantam/kernels/head/cuda/classifier_head_sample.cuh"

namespace bantam::kernels::cuda {

/// The last warp adds up losses, the others the gradients of the small parameters.
inline constexpr int kGradientThreads = kLossThreads - 32;

/// This block's parts of dw2 (four classes by two units a thread), db1 and db2, by the first kGradientThreads threads.
template <int kUnits, int kClasses>
__device__ void sum_small_gradients(const ClassifierHeadShape& s, const LossArrays<kUnits, kClasses>& at, int rows,
                                    float* part) {
  constexpr int kWidth = LossArrays<kUnits, kClasses>::kWidth;
  const int classes = static_cast<int>(s.classes), hidden = static_cast<int>(s.hidden), pairs = hidden / 2;
  const int tiles = (classes + 3) / 4 * pairs;
  for (int i = static_cast<int>(threadIdx.x); i < tiles + hidden + classes; i += kGradientThreads) {
    if (i < tiles) {
      const int c = i / pairs * 4, unit = i % pairs * 2;
      float2 sums[4] = {};
#pragma unroll 4
      for (int row = 0; row < rows; ++row) {
        const auto g = load_pack<4>(at.dlogits + row * kClasses + c);
        const auto h = load_pack<2>(at.hidden + row * kWidth + unit);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          sums[k].x = fmaf(g.v[k], h.v[0], sums[k].x);
          sums[k].y = fmaf(g.v[k], h.v[1], sums[k].y);
        }
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (c + k >= classes) break;
        part[(c + k) * hidden + unit] = sums[k].x;
        part[(c + k) * hidden + unit + 1] = sums[k].y;
      }
    } else {
      const int unit = i - tiles;
      const float* column = unit < hidden ? at.dhidden + unit : at.dlogits + unit - hidden;
      const int step = unit < hidden ? kWidth : kClasses;
      float sum = 0.0f;
#pragma unroll 4
      for (int row = 0; row < rows; ++row) sum += column[row * step];
      part[classes * hidden + (unit < hidden ? classes + unit : unit - hidden)] = sum;
    }
  }
}

/// The last warp of each block: the block's sums from its warps', and in the last block of all what all found, to where
/// `loss` says. `before` is what the ring holds.
__device__ inline void finish_losses(const ClassifierHeadShape& s, const LossSums* warps, LossSums* blocks,
                                     unsigned* counter, const ClassifierHeadLoss& loss, MetricSums* place,
                                     const MetricSums& before) {
  const int lane = static_cast<int>(threadIdx.x) % 32, count = static_cast<int>(gridDim.x);
  const auto total_of = [](LossSums sums) { return LossSums{warp_total(sums.loss), warp_total(sums.correct)}; };
  LossSums sums = total_of(lane < kLossWarps ? warps[lane] : LossSums{});
  if (count > 1) {
    bool last = false;
    if (lane == 0) {
      blocks[blockIdx.x] = sums;
      last = counted_last(counter);
    }
    if (!__shfl_sync(kAllLanes, last, 0)) return;
    __syncwarp();  // what the first lane has seen, the others see
    sums = {};
    for (int i = lane; i < count; i += 32) {
      sums.loss += __ldcg(&blocks[i].loss);
      sums.correct += __ldcg(&blocks[i].correct);
    }
    sums = total_of(sums);
  }
  if (lane != 0) return;
  *loss.loss = static_cast<float>(sums.loss / loss.divisor);
  if (place != nullptr)
    *place = {before.loss + sums.loss, before.correct + sums.correct, before.samples + static_cast<double>(s.batch)};
}

/// A block computes `rows` samples (the last one fewer). What hidden_partials does not write is read while it runs: all
/// kernels before it have ended when it lets this one start.
template <class T, int kUnits, int kClasses>
__global__ void __launch_bounds__(kLossThreads, 1)
    classifier_loss_kernel(ClassifierHeadShape s, int rows, LossOperands<T> in, ClassifierHeadLoss loss) {
  extern __shared__ __align__(16) float floats[];
  __shared__ LossSums warps[kLossWarps];
  using Arrays = LossArrays<kUnits, kClasses>;
  using Warp = LossWarp<T, kUnits, kClasses>;
  const Arrays at(floats, rows);
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * rows;
  rows = static_cast<int>(min(static_cast<std::int64_t>(rows), s.batch - row0));
  Warp warp;
  warp.load(s, in, loss, row0, rows);
  warp.w2.load(s, in.w2, at.w2);
  MetricSums before{};
  MetricSums* place = loss.ring;
  if (static_cast<int>(threadIdx.x) == kGradientThreads && place != nullptr) {
    if (loss.slot != nullptr) place += __ldcg(loss.slot);
    before = {__ldcg(&place->loss), __ldcg(&place->correct), __ldcg(&place->samples)};
  }
  wait_for_kernel_before();
  let_next_kernel_start();
  LossSums sums;
#pragma unroll 1  // instructions come from far: less of them is faster
  for (int row = warp.warp; row < rows; row += static_cast<int>(kLossWarps)) {
    float h[kUnits], logits[Warp::kLogits] = {};
    warp.make_hidden(s, in, row0 + row, h);
    warp.make_logits(h, logits);
    warp.make_loss(s, row == warp.warp ? warp.labels[0] : warp.labels[1], logits, sums);
    if (loss.upstream != nullptr) warp.make_gradient(s, at, row, h, logits, in.dhidden + (row0 + row) * s.hidden);
  }
  if (warp.lane == 0) warps[warp.warp] = sums;
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= kGradientThreads) {
    finish_losses(s, warps, in.sums, in.counter, loss, place, before);
  } else if (loss.upstream != nullptr) {
    sum_small_gradients(s, at, rows, in.small_gradients + blockIdx.x * small_gradients(s));
  }
}

}  // namespace bantam::kernels::cuda
