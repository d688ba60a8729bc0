// Resizing on CUDA: a thread blends the four pixels around a pack of channels.
#include "bantam/kernels/image/cuda/axis_kernels.cuh"
#include "bantam/kernels/image/resize2d.h"

namespace bantam::kernels::cuda {
namespace {

template <class T, int N>
__global__ void __launch_bounds__(kImageThreads) blend_kernel(const T* __restrict__ x, T* __restrict__ y, ImageGrid g,
                                                              BilinearAxis h, BilinearAxis w, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kImageThreads + threadIdx.x;
  if (thread >= threads) return;
  const ImagePlace at = image_place<N>(g, thread);
  const Blend rows = h.blend(at.row), columns = w.blend(at.column);
  Pack<T, N> loaded[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    loaded[i] = load_pack<N>(
        x + at.offset(h.in, w.in, i < 2 ? rows.low : rows.high, i % 2 == 0 ? columns.low : columns.high, g.channels));
  float corner[4][N], result[N];
#pragma unroll
  for (int i = 0; i < 4; ++i) unpack<N>(loaded[i], corner[i]);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float top = corner[0][n] * (1.0f - columns.weight) + corner[1][n] * columns.weight;
    const float bottom = corner[2][n] * (1.0f - columns.weight) + corner[3][n] * columns.weight;
    result[n] = top * (1.0f - rows.weight) + bottom * rows.weight;
  }
  repack<N>(result, y + at.offset(h.out, w.out, at.row, at.column, g.channels));
}

template <class T>
void launch_blend(const Exec& exec, const Resize2dShape& s, const T* x, T* y) {
  const bool align = s.mode == ResizeMode::bilinear_align_corners;
  const BilinearAxis h = bilinear_axis(s.in_h, s.out_h, align), w = bilinear_axis(s.in_w, s.out_w, align);
  with_pack<T>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        launch_image<N>({s.batch, s.channels}, s.out_h, s.out_w,
                        [&](unsigned blocks, std::uint32_t threads, const ImageGrid& g, std::int64_t first) {
                          blend_kernel<T, N><<<blocks, kImageThreads, 0, stream_of(exec)>>>(
                              x + first * s.in_h * s.in_w * s.channels, y + first * s.out_h * s.out_w * s.channels, g,
                              h, w, threads);
                        });
      },
      s.channels, x, y);
}

}  // namespace

void resize2d_forward(const Exec& exec, const Resize2dShape& s, DType dtype, const void* x, void* y) {
  if (s.mode == ResizeMode::nearest)
    return copy_sources(exec, {s.batch, s.channels}, nearest_axis(s.in_h, s.out_h), nearest_axis(s.in_w, s.out_w),
                        dtype, x, y);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_blend(exec, s, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void resize2d_grad_input(const Exec& exec, const Resize2dShape& s, DType dtype, const void* dy, void* dx) {
  const bool align = s.mode == ResizeMode::bilinear_align_corners;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(dy);
    T* to = static_cast<T*>(dx);
    if (s.mode == ResizeMode::nearest)
      return sum_readers(exec, {s.batch, s.channels}, nearest_axis(s.in_h, s.out_h), nearest_axis(s.in_w, s.out_w),
                         from, to);
    sum_readers(exec, {s.batch, s.channels}, bilinear_axis(s.in_h, s.out_h, align),
                bilinear_axis(s.in_w, s.out_w, align), from, to);
  });
}

}  // namespace bantam::kernels::cuda
