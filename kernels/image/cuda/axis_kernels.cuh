// Padding and resizing on CUDA: outputs that are copies of inputs, and gradients that gather over an input's readers.
#pragma once

#include "bantam/kernels/image/axis_maps.h"
#include "bantam/kernels/image/cuda/image_places.cuh"

namespace bantam::kernels::cuda {

template <class T, int N, class Axis>
__global__ void __launch_bounds__(kImageThreads)
    copy_sources_kernel(const T* __restrict__ x, T* __restrict__ y, ImageGrid g, Axis h, Axis w,
                        std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kImageThreads + threadIdx.x;
  if (thread >= threads) return;
  const ImagePlace at = image_place<N>(g, thread);
  const int row = h.source(at.row), column = w.source(at.column);
  Pack<T, N> values{};
  if (row >= 0 && column >= 0) values = load_pack<N>(x + at.offset(h.in, w.in, row, column, g.channels));
  *reinterpret_cast<Pack<T, N>*>(y + at.offset(h.out, w.out, at.row, at.column, g.channels)) = values;
}

/// dx = Σ weight·dy over readers, row after row of them.
template <class T, int N, class Axis>
__global__ void __launch_bounds__(kImageThreads)
    sum_readers_kernel(const T* __restrict__ dy, T* __restrict__ dx, ImageGrid g, Axis h, Axis w,
                       std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kImageThreads + threadIdx.x;
  if (thread >= threads) return;
  const ImagePlace at = image_place<N>(g, thread);
  float sum[N] = {};
  h.for_each_reader(at.row, [&](int row, float row_weight) {
    w.for_each_reader(at.column, [&](int column, float column_weight) {
      float values[N];
      unpack<N>(dy + at.offset(h.out, w.out, row, column, g.channels), values);
      const float weight = row_weight * column_weight;
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] += weight * values[n];
    });
  });
  repack<N>(sum, dx + at.offset(h.in, w.in, at.row, at.column, g.channels));
}

/// Values are moved as integers of their size.
template <class T, class Axis>
void launch_copies(const Exec& exec, const ImageBatch& images, const Axis& h, const Axis& w, const T* x, T* y) {
  with_pack<T>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        launch_image<N>(images, h.out, w.out,
                        [&](unsigned blocks, std::uint32_t threads, const ImageGrid& g, std::int64_t first) {
                          copy_sources_kernel<T, N><<<blocks, kImageThreads, 0, stream_of(exec)>>>(
                              x + first * h.in * w.in * images.channels, y + first * h.out * w.out * images.channels, g,
                              h, w, threads);
                        });
      },
      images.channels, x, y);
}

template <class Axis>
void copy_sources(const Exec& exec, const ImageBatch& images, const Axis& h, const Axis& w, DType dtype, const void* x,
                  void* y) {
  if (size_of(dtype) == sizeof(float))
    return launch_copies(exec, images, h, w, static_cast<const std::uint32_t*>(x), static_cast<std::uint32_t*>(y));
  launch_copies(exec, images, h, w, static_cast<const std::uint16_t*>(x), static_cast<std::uint16_t*>(y));
}

template <class T, class Axis>
void sum_readers(const Exec& exec, const ImageBatch& images, const Axis& h, const Axis& w, const T* dy, T* dx) {
  with_pack<T>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        launch_image<N>(images, h.in, w.in,
                        [&](unsigned blocks, std::uint32_t threads, const ImageGrid& g, std::int64_t first) {
                          sum_readers_kernel<T, N><<<blocks, kImageThreads, 0, stream_of(exec)>>>(
                              dy + first * h.out * w.out * images.channels, dx + first * h.in * w.in * images.channels,
                              g, h, w, threads);
                        });
      },
      images.channels, dy, dx);
}

}  // namespace bantam::kernels::cuda
