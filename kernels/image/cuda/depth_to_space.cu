// Depth to space on CUDA. With the channel last in the deep image's channel axis, rows of blocks are runs of memory,
// copied in packs; with the channel first a thread moves a few channels of a whole block: 2x2 blocks from and to packs,
// others value by value.
#include "bantam/kernels/image/cuda/image_places.cuh"
#include "bantam/kernels/image/depth_to_space.h"

namespace bantam::kernels::cuda {
namespace {

/// Deep (batch·h, w, block, run) to wide (batch·h, block, w, run) in packs of N; a thread's place: image = batch·h, row
/// = block row, column = column of the deep image, c within the run.
template <bool kToWide, class T, int N>
__global__ void __launch_bounds__(kImageThreads)
    move_runs_kernel(const T* __restrict__ from, T* __restrict__ to, ImageGrid g, int block, int w,
                     std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kImageThreads + threadIdx.x;
  if (thread >= threads) return;
  const ImagePlace at = image_place<N>(g, thread);
  const std::int64_t wide = at.offset(block, w, at.row, at.column, g.channels);
  const std::int64_t deep = at.offset(w, block, at.column, at.row, g.channels);
  *reinterpret_cast<Pack<T, N>*>(to + (kToWide ? wide : deep)) = load_pack<N>(from + (kToWide ? deep : wide));
}

/// Channel first, blocks of kBlock² known: N channels of a pixel are N·kBlock² neighbours of the deep image and kBlock²
/// packs of the wide one. A thread's place is one of the deep image, c of the wide image's channels.
template <bool kToWide, class T, int N, int kBlock>
__global__ void __launch_bounds__(kImageThreads) move_block_kernel(const T* __restrict__ from, T* __restrict__ to,
                                                                   ImageGrid g, int h, int w, std::uint32_t threads) {
  constexpr int kPlaces = kBlock * kBlock;
  const std::uint32_t thread = blockIdx.x * kImageThreads + threadIdx.x;
  if (thread >= threads) return;
  const ImagePlace at = image_place<N>(g, thread);
  const std::int64_t deep = at.offset(h, w, at.row, at.column, g.channels) * kPlaces;
  const auto wide = [&](int place) {
    return at.offset(h * kBlock, w * kBlock, at.row * kBlock + place / kBlock, at.column * kBlock + place % kBlock,
                     g.channels);
  };
  Pack<T, N> deep_values[kPlaces], wide_values[kPlaces];  // value i of the neighbours: deep_values[i / N].v[i % N]
#pragma unroll
  for (int k = 0; k < kPlaces; ++k) {
    if (kToWide)
      deep_values[k] = load_pack<N>(from + deep + k * N);
    else
      wide_values[k] = load_pack<N>(from + wide(k));
  }
#pragma unroll
  for (int k = 0; k < kPlaces; ++k)
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int i = n * kPlaces + k;  // channel n, place k
      if (kToWide)
        wide_values[k].v[n] = deep_values[i / N].v[i % N];
      else
        deep_values[i / N].v[i % N] = wide_values[k].v[n];
    }
#pragma unroll
  for (int k = 0; k < kPlaces; ++k) {
    if (kToWide)
      *reinterpret_cast<Pack<T, N>*>(to + wide(k)) = wide_values[k];
    else
      *reinterpret_cast<Pack<T, N>*>(to + deep + k * N) = deep_values[k];
  }
}

/// Channel first, any block: a thread moves the value of one place of the wide image.
template <bool kToWide, class T>
__global__ void __launch_bounds__(kImageThreads)
    move_values_kernel(const T* __restrict__ from, T* __restrict__ to, ImageGrid g, int h, int w, FastDivide by_block,
                       int block, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kImageThreads + threadIdx.x;
  if (thread >= threads) return;
  const ImagePlace at = image_place<1>(g, thread);
  const Divided row = by_block.divide(static_cast<std::uint32_t>(at.row)),
                column = by_block.divide(static_cast<std::uint32_t>(at.column));
  const std::int64_t wide = at.offset(h * block, w * block, at.row, at.column, g.channels);
  const std::int64_t pixel = (at.image * h + row.quotient) * w + column.quotient;
  const std::int64_t deep = (pixel * g.channels + at.c) * block * block + row.remainder * block + column.remainder;
  to[kToWide ? wide : deep] = from[kToWide ? deep : wide];
}

template <bool kToWide, class T>
void move_runs(const Exec& exec, const DepthToSpaceShape& s, const T* from, T* to) {
  const ImageBatch rows{s.batch * s.h, s.channels * s.block};
  const int block = extent(s.block), w = extent(s.w);
  with_pack<T>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        launch_image<N>(
            rows, s.block, s.w, [&](unsigned blocks, std::uint32_t threads, const ImageGrid& g, std::int64_t first) {
              const std::int64_t skip = first * s.w * s.block * rows.channels;
              move_runs_kernel<kToWide, T, N>
                  <<<blocks, kImageThreads, 0, stream_of(exec)>>>(from + skip, to + skip, g, block, w, threads);
            });
      },
      rows.channels, from, to);
}

template <bool kToWide, class T>
void move_pairs(const Exec& exec, const DepthToSpaceShape& s, const T* from, T* to) {
  const int h = extent(s.h), w = extent(s.w);
  with_pack<T>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        launch_image<N>({s.batch, s.channels}, s.h, s.w,
                        [&](unsigned blocks, std::uint32_t threads, const ImageGrid& g, std::int64_t first) {
                          const std::int64_t skip = first * s.h * s.w * s.channels * 4;
                          move_block_kernel<kToWide, T, N, 2>
                              <<<blocks, kImageThreads, 0, stream_of(exec)>>>(from + skip, to + skip, g, h, w, threads);
                        });
      },
      s.channels, from, to);
}

template <bool kToWide, class T>
void move_values(const Exec& exec, const DepthToSpaceShape& s, const T* from, T* to) {
  if (s.elements() == 0) return;
  if (!s.channel_first) return move_runs<kToWide>(exec, s, from, to);
  if (s.block == 2) return move_pairs<kToWide>(exec, s, from, to);
  const int h = extent(s.h), w = extent(s.w), block = extent(s.block);
  launch_image<1>({s.batch, s.channels}, s.h * s.block, s.w * s.block,
                  [&](unsigned blocks, std::uint32_t threads, const ImageGrid& g, std::int64_t first) {
                    const std::int64_t skip = first * s.h * s.w * s.channels * s.block * s.block;
                    move_values_kernel<kToWide><<<blocks, kImageThreads, 0, stream_of(exec)>>>(
                        from + skip, to + skip, g, h, w, FastDivide(s.block), block, threads);
                  });
}

template <bool kToWide>
void move_typed(const Exec& exec, const DepthToSpaceShape& s, DType dtype, const void* from, void* to) {
  if (size_of(dtype) == sizeof(float))
    return move_values<kToWide>(exec, s, static_cast<const std::uint32_t*>(from), static_cast<std::uint32_t*>(to));
  move_values<kToWide>(exec, s, static_cast<const std::uint16_t*>(from), static_cast<std::uint16_t*>(to));
}

}  // namespace

void depth_to_space(const Exec& exec, const DepthToSpaceShape& s, DType dtype, const void* deep, void* wide) {
  move_typed<true>(exec, s, dtype, deep, wide);
}
void space_to_depth(const Exec& exec, const DepthToSpaceShape& s, DType dtype, const void* wide, void* deep) {
  move_typed<false>(exec, s, dtype, wide, deep);
}

}  // namespace bantam::kernels::cuda
