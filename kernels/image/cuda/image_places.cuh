// Index arithmetic of image ops on CUDA: a thread computes one position of a pack of channels.
#pragma once

#include "bantam/kernels/common/cuda/reduce/image_chunks.cuh"
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"

namespace bantam::kernels::cuda {

inline constexpr int kImageThreads = 256;

/// The divisors that turn a thread's index into (image, row, column, pack of channels).
struct ImageGrid {
  FastDivide by_packs, by_columns, by_rows;
  int channels;
};

struct ImagePlace {
  std::int64_t image;
  int row, column, c;

  __device__ std::int64_t offset(int height, int width, int at_row, int at_column, int channels) const {
    return ((image * height + at_row) * width + at_column) * channels + c;
  }
};

template <int N>
__device__ inline ImagePlace image_place(const ImageGrid& g, std::uint32_t thread) {
  const Divided pack = g.by_packs.divide(thread);
  const Divided column = g.by_columns.divide(pack.quotient);
  const Divided row = g.by_rows.divide(column.quotient);
  return {static_cast<std::int64_t>(row.quotient), static_cast<int>(row.remainder), static_cast<int>(column.remainder),
          static_cast<int>(pack.remainder) * N};
}

/// An image op's batch and channels.
struct ImageBatch {
  std::int64_t batch, channels;
};

/// Calls launch(blocks, threads, grid, first image) for chunks of images, a thread for each N channels of every place
/// of height x width.
template <int N, class Launch>
void launch_image(const ImageBatch& images, std::int64_t height, std::int64_t width, Launch&& launch) {
  const std::int64_t packs = images.channels / N;
  if (height <= 0 || width <= 0 || packs <= 0) return;
  const ImageGrid grid{FastDivide(packs), FastDivide(width), FastDivide(height), extent(images.channels)};
  for_image_chunks(images.batch, packs * height * width, [&](std::int64_t first, std::int64_t, std::uint32_t threads) {
    launch(blocks_for(threads, kImageThreads), threads, grid, first);
    check_launch("image op");
  });
}

}  // namespace bantam::kernels::cuda
