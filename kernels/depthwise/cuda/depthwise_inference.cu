// Depthwise convolution for inference on CUDA: 3x3 kernels with bias and activation as they write; others, and sums, in
// a pass after the convolution.
#include "bantam/kernels/depthwise/cuda/depthwise_3x3.cuh"
#include "bantam/kernels/depthwise/depthwise_inference.h"
#include "bantam/kernels/depthwise/depthwise_parts.h"
#include "bantam/kernels/elementwise/cuda/activation_math.cuh"

namespace bantam::kernels::cuda {
namespace {

template <class T, class F>
struct StripEpilogue {
  const T* bias;  // or null
  F f;
};

/// depthwise_3x3_kernel with an epilogue.
template <class T, int N, int kStride, int kColumns, class F>
__global__ void __launch_bounds__(kStripThreads, 4)
    depthwise_3x3_inference_kernel(const T* x, const T* weights, T* y, Strips g, StripGrid grid,
                                   StripEpilogue<T, F> epilogue) {
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int c = static_cast<int>(block.remainder * blockDim.x + threadIdx.x) * N;
  const std::uint32_t index = block.quotient * blockDim.y + threadIdx.y;
  if (c >= g.channels || index >= g.tasks) return;
  const StripTask task = g.task(index);
  float taps[9][N], bias[N];
  load_taps<T, N>(weights, g.channels, c, false, taps);
#pragma unroll
  for (int n = 0; n < N; ++n) bias[n] = epilogue.bias != nullptr ? to_float(epilogue.bias[c + n]) : 0.0f;
  using Values = PlainValues<T, N>;
  auto rows = rows_under<Values, kColumns, kStride, kRowsAhead<T>, T, N>(x, g, task, c);
  StripWriter<T> out(y, g, task, c);
  convolve_strip<kStride, kColumns>(rows, Values{}, taps, task.end_row - task.first_row,
                                    [&](const float(&sums)[kColumns][N]) {
                                      float values[kColumns][N];
#pragma unroll
                                      for (int t = 0; t < kColumns; ++t) {
#pragma unroll
                                        for (int n = 0; n < N; ++n) values[t][n] = sums[t][n] + bias[n];
                                        apply_values(epilogue.f, values[t]);
                                      }
                                      out.write(values);
                                    });
}

template <class T, class F>
void launch_strips(const Exec& exec, const DepthwiseConv2dShape& s, const T* x, const T* w,
                   const StripEpilogue<T, F>& epilogue, T* y) {
  // Short chunks: with one image the time of a pass is the latency of a thread's rows.
  const StripCut cut = cut_strips(s.batch, s.out_h(), s.out_w(), s.stride_h == 1 ? 4 : 2,
                                  s.channels / strip_channels(s.channels), {.least_rows = 2});
  if (cut.tasks == 0 || s.channels == 0) return;
  const Strips g = strips_of(s, cut);
  with_pack<T, 4>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        const StripGrid grid = strip_grid(s.channels / N, cut.tasks);
        const auto kernel = s.stride_h == 1 ? depthwise_3x3_inference_kernel<T, N, 1, 4, F>
                                            : depthwise_3x3_inference_kernel<T, N, 2, 2, F>;
        kernel<<<grid.blocks, grid.block, 0, stream_of(exec)>>>(x, w, y, g, grid, epilogue);
        check_launch("depthwise_3x3_inference_kernel");
      },
      s.channels, x, w, y);
}

}  // namespace

void depthwise_conv2d_inference(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                                const void* w, const Epilogue& epilogue, void* y) {
  if (!fits_strips(s) || epilogue.residual != nullptr) {
    depthwise_conv2d_forward(exec, s, dtype, x, w, y);
    epilogue_forward(exec, s.batch * s.out_h() * s.out_w(), s.out_channels(), dtype, epilogue, y);
    return;
  }
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_activation(epilogue.f, [&](auto f) {
      launch_strips(exec, s, static_cast<const T*>(x), static_cast<const T*>(w),
                    StripEpilogue<T, decltype(f)>{static_cast<const T*>(epilogue.bias), f}, static_cast<T*>(y));
    });
  });
}

}  // namespace bantam::kernels::cuda
