// Depthwise convolution between batch norms on CUDA: one pass over strips each way, ordered sums after it, and the
// first norm's own input gradient.
#include "bantam/kernels/common/cuda/reduce/part_moments.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/depthwise/cuda/norm_depthwise_backward.cuh"
#include "bantam/kernels/depthwise/cuda/norm_depthwise_forward.cuh"
#include "bantam/kernels/depthwise/norm_depthwise.h"
#include "bantam/kernels/depthwise/norm_depthwise_parts.h"
#include "bantam/kernels/norm/cuda/batch_norm_gradient.cuh"
#include "bantam/kernels/norm/cuda/norm_statistics.cuh"

namespace bantam::kernels::cuda {
namespace {

void check_shape(const DepthwiseConv2dShape& s, const NormOperand& x, ActivationFunction after) {
  if (!norm_depthwise_supports(s, x.affine.activation, after))
    throw ShapeError("norm_depthwise: a shape or an activation that its kernels do not support");
}

/// Channels of a block that merges parts' moments, and the threads that share a channel's.
constexpr int kMomentChannels = 16, kMomentThreads = 32;
/// Parts that such a thread has under way at a time: the kernel is a chain of waits for memory.
constexpr int kMomentsAtOnce = 8;

/// Σ over the rows of a channel, for all lanes of a warp.
__device__ double sum_of_rows(const double (&shared)[kMomentThreads][kMomentChannels + 1], int channel, int lane) {
  double sum = shared[lane][channel];
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
  return sum;
}

/// Mean, inv_std and running statistics of a block's channels from the parts' moments: sums, in double, of the
/// distances of the parts' means from the first part's, which are close to each other.
__global__ void __launch_bounds__(kMomentChannels* kMomentThreads)
    merge_part_moments_kernel(const float* partials, const float* counts, int parts, int channels,
                              StatisticsOutput out) {
  wait_then_let_next_start();
  __shared__ double shared[3][kMomentThreads][kMomentChannels + 1];
  const int first_channel = static_cast<int>(blockIdx.x) * kMomentChannels;
  const FinishStatistics finish = FinishStatistics::of(out);
  const auto mean_of = [](float origin, float apart) { return static_cast<double>(origin) + apart; };
  const int c = min(first_channel + static_cast<int>(threadIdx.x), channels - 1), row = static_cast<int>(threadIdx.y);
  const double first = mean_of(partials[c], partials[channels + c]);
  double count = 0, distances = 0, squares = 0;
  for (int begin = row; begin < parts; begin += kMomentsAtOnce * kMomentThreads) {
    float moments[kMomentsAtOnce][kMomentFloats], each[kMomentsAtOnce];
#pragma unroll
    for (int i = 0; i < kMomentsAtOnce; ++i) {
      const int part = min(begin + i * kMomentThreads, parts - 1);
      each[i] = begin + i * kMomentThreads < parts ? counts[part] : 0.0f;
#pragma unroll
      for (int k = 0; k < kMomentFloats; ++k)
        moments[i][k] = partials[(static_cast<std::int64_t>(part) * kMomentFloats + k) * channels + c];
    }
#pragma unroll
    for (int i = 0; i < kMomentsAtOnce; ++i) {
      if (each[i] == 0) continue;
      const double apart = mean_of(moments[i][0], moments[i][1]) - first;
      count += each[i];
      distances += each[i] * apart;
      squares += moments[i][2] + each[i] * apart * apart;
    }
  }
  shared[0][row][threadIdx.x] = count;
  shared[1][row][threadIdx.x] = distances;
  shared[2][row][threadIdx.x] = squares;
  __syncthreads();
  const int thread = row * kMomentChannels + static_cast<int>(threadIdx.x), mine = thread / 32, lane = thread % 32;
  if (first_channel + mine >= channels) return;
  const double base = mean_of(partials[first_channel + mine], partials[channels + first_channel + mine]);
  count = sum_of_rows(shared[0], mine, lane);
  distances = sum_of_rows(shared[1], mine, lane);
  squares = sum_of_rows(shared[2], mine, lane);
  const double apart = distances / count, m2 = squares - distances * apart;
  const std::int64_t channel = first_channel + mine;
  if (lane == 0) finish(channel, finish.begin(channel), 0.0f, {count, {base + apart}, {m2 > 0 ? m2 : 0}});
}

/// Writes backward's eleven sums a channel: the weights' to their place, the first norm's to `totals` (2, channels);
/// and the second norm's, which are already known.
struct FinishBackward {
  NormDepthwiseGradients to;
  const float* inv_std;       ///< of the norm before
  float* totals;              ///< Σ dz, Σ dz·x̂ of the norm before
  const float* after_totals;  ///< of the norm after
  std::int64_t channels;

  __device__ static void put(float* at, float value, bool accumulate) {
    if (at != nullptr) *at = accumulate ? *at + value : value;
  }
  __device__ void operator()(std::int64_t i, float sum) const {
    if (i < 9 * channels) return put(to.dw != nullptr ? to.dw + i : nullptr, sum, to.accumulate);
    const bool products = i >= 10 * channels;
    const std::int64_t c = i - (products ? 10 : 9) * channels;
    if (products) sum *= inv_std[c];
    totals[i - 9 * channels] = sum;
    float* const before = products ? to.before.dscale : to.before.dshift;
    float* const after = products ? to.after.dscale : to.after.dshift;
    put(before != nullptr ? before + c : nullptr, sum, to.before.accumulate);
    put(after != nullptr ? after + c : nullptr, after_totals[i - 9 * channels], to.after.accumulate);
  }
};

template <class T>
void launch_forward(const Exec& exec, const DepthwiseConv2dShape& s, const NormOperand& x, const void* w, void* y,
                    float* partials, float* counts) {
  const StripParts parts = norm_forward_strips(s);
  const StripGrid grid = strip_grid(s.channels / 4, parts.cut.tasks, parts.tasks_each);
  const auto kernel =
      s.stride_h == 1 ? norm_depthwise_forward_kernel<T, 4, 1, 4> : norm_depthwise_forward_kernel<T, 4, 2, 2>;
  kernel<<<grid.blocks, grid.block, 0, stream_of(exec)>>>(
      static_cast<const T*>(x.x), affine_of(x), Clamp::of(x.affine.activation), static_cast<const T*>(w),
      static_cast<T*>(y), strips_of(s, parts.cut), grid, static_cast<std::uint32_t>(parts.tasks_each), partials,
      counts);
  check_launch("norm_depthwise_forward_kernel");
}

template <class T, bool kWhole>
auto backward_kernel(std::int64_t stride) {
  return stride == 1 ? norm_depthwise_backward_kernel<T, kBackwardPack, 1, kBackwardColumns, kWhole, FinishBackward>
                     : norm_depthwise_backward_kernel<T, kBackwardPack, 2, kBackwardColumns, kWhole, FinishBackward>;
}

template <class T>
void launch_backward(const Exec& exec, const DepthwiseConv2dShape& s, const BackwardOperands<T>& operands,
                     float* partials, const FinishBackward& finish) {
  const StripParts parts = norm_backward_strips(s);
  const StripGrid grid = strip_grid(s.channels / kBackwardPack, parts.cut.tasks, parts.tasks_each);
  const auto kernel =
      has_whole_strips(s) ? backward_kernel<T, true>(s.stride_h) : backward_kernel<T, false>(s.stride_h);
  kernel<<<grid.blocks, grid.block, 0, stream_of(exec)>>>(
      operands, strips_of(s, parts.cut), grid, static_cast<std::uint32_t>(parts.tasks_each), partials, finish);
  check_launch("norm_depthwise_backward_kernel");
  if (parts.parts > 1) add_strip_parts(exec, partials, parts.parts, kBackwardSums * s.channels, finish);
  if (finish.to.totals != nullptr) return;
  const std::int64_t rows = norm_before(s).rows;
  const InputGradient<T, PiecewiseLinear> from_dz{
      operands.x, operands.dx, operands.before, {}, finish.totals, s.channels, 1.0f / static_cast<float>(rows),
      operands.dx};
  map_rows<16 / sizeof(T)>(exec, rows, s.channels, from_dz);
}

}  // namespace

void merge_part_moments(const Exec& exec, const PartMoments& parts, const StatisticsOutput& statistics) {
  const dim3 block(kMomentChannels, kMomentThreads);
  launch_early(exec, merge_part_moments_kernel, dim3(blocks_for(parts.channels, kMomentChannels)), block, parts.moments,
               parts.counts, static_cast<int>(parts.parts), static_cast<int>(parts.channels), statistics);
}

void norm_depthwise_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const NormOperand& x,
                            const void* w, void* y, const StatisticsOutput& statistics, Workspace workspace) {
  check_shape(s, x, {Activation::relu});
  if (s.y_elements() <= 0) return;
  require_workspace(workspace, norm_depthwise_workspace_bytes(s, dtype, DeviceKind::cuda), "norm_depthwise_forward");
  const std::int64_t parts = norm_forward_strips(s).parts;
  float* partials = static_cast<float*>(workspace.data);  // (parts, 3, channels), then the parts' counts
  float* counts = partials + parts * kMomentFloats * s.channels;
  dispatch_floating(
      dtype, [&](auto tag) { launch_forward<typename decltype(tag)::type>(exec, s, x, w, y, partials, counts); });
  merge_part_moments(exec, {partials, counts, parts, s.channels}, statistics);
}

void norm_depthwise_backward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype,
                             const NormDepthwiseInputs& in, const NormDepthwiseGradients& gradients,
                             Workspace workspace) {
  check_shape(s, in.x, in.y.affine.activation);
  if (s.y_elements() <= 0) return;
  require_workspace(workspace, norm_depthwise_workspace_bytes(s, dtype, DeviceKind::cuda), "norm_depthwise_backward");
  WorkspaceCutter cutter(workspace);
  float* const totals = cutter.cut<float>(static_cast<std::size_t>(4 * s.channels) * sizeof(float));
  float* const after_totals = totals + 2 * s.channels;
  float* const rest = cutter.cut<float>(0);
  const BatchNormShape after = norm_after(s);
  batch_norm_backward_training(exec, after, dtype, in.y, in.dy,
                               {.dscale = after_totals + s.channels, .dshift = after_totals},
                               {rest, batch_norm_workspace_bytes(after, dtype, DeviceKind::cuda)});
  const FinishBackward finish{gradients, in.x.inv_std, gradients.totals != nullptr ? gradients.totals : totals,
                              after_totals, s.channels};
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const BackwardOperands<T> operands{.x = static_cast<const T*>(in.x.x),
                                       .y = static_cast<const T*>(in.y.x),
                                       .dy = static_cast<const T*>(in.dy),
                                       .weights = static_cast<const T*>(in.w),
                                       .dx = static_cast<T*>(gradients.dx),
                                       .before = affine_of(in.x),
                                       .after = affine_of(in.y),
                                       .before_clamp = Clamp::of(in.x.affine.activation),
                                       .after_clamp = Clamp::of(in.y.affine.activation),
                                       .after_totals = after_totals,
                                       .per_row = 1.0f / static_cast<float>(after.rows)};
    launch_backward(exec, s, operands, rest, finish);
  });
}

}  // namespace bantam::kernels::cuda
