// Views of finished images on CUDA: a thread writes four neighbouring values of one image.
#include <limits>
#include <string>

#include "bantam/base/error.h"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/input/image_views.h"
#include "bantam/kernels/input/source_position.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kValues = 4;  // a thread

/// The value of output (i, j, c); T has the size of the image's type, and 0 is its zero.
template <class T>
__device__ inline T value_at(const ImageViewShape& s, const T* image, int i, int j, int c) {
  const int width = static_cast<int>(s.width), channels = static_cast<int>(s.channels);
  const int row = source_position(i + s.top, static_cast<int>(s.height), s.pad_mode);
  const int column = source_position((s.flip ? width - 1 - j : j) + s.left, width, s.pad_mode);
  if (row < 0 || column < 0) return T{0};
  return image[(static_cast<std::int64_t>(row) * width + column) * channels + c];
}

/// Images go over blockIdx.y, groups of four values over blockIdx.x.
template <class T>
__global__ void image_views_kernel(const __grid_constant__ ImageViewShape s, bool aligned, const T* x,
                                   const std::int32_t* rows, T* y) {
  const int channels = static_cast<int>(s.channels), width = static_cast<int>(s.width);
  const std::int64_t total = s.height * s.width * s.channels;
  for (std::int64_t n = blockIdx.y; n < s.count; n += gridDim.y) {
    const T* image = x + (rows != nullptr ? rows[n] - s.first_row : n) * total;
    for (std::int64_t first = grid_thread() * kValues; first < total; first += grid_threads() * kValues) {
      const int pixel = static_cast<int>(first) / channels;
      int i = pixel / width, j = pixel % width, c = static_cast<int>(first) % channels;
      const int valid = total - first < kValues ? static_cast<int>(total - first) : kValues;
      Pack<T, kValues> values;
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        values.v[k] = k < valid ? value_at(s, image, i, j, c) : T{0};
        if (++c == channels) {
          c = 0;
          if (++j == width) {
            j = 0;
            ++i;
          }
        }
      }
      T* to = y + n * total + first;
      if (aligned) {
        *reinterpret_cast<Pack<T, kValues>*>(to) = values;
      } else {
#pragma unroll
        for (int k = 0; k < kValues; ++k) {
          if (k < valid) to[k] = values.v[k];
        }
      }
    }
  }
}

template <class T>
void launch(const Exec& exec, const ImageViewShape& s, const void* x, const std::int32_t* rows, void* y) {
  const std::int64_t total = s.height * s.width * s.channels;
  if (s.count <= 0 || total <= 0) return;
  if (total > std::numeric_limits<std::int32_t>::max() || s.width > (1 << 29) || s.height > (1 << 29))
    throw ShapeError("image_views: an image has more than 2^31 - 1 values");
  T* const to = static_cast<T*>(y);
  const bool aligned = total % kValues == 0 && packs_aligned<T, kValues>(to);
  const dim3 blocks(stride_blocks((total + kValues - 1) / kValues),
                    static_cast<unsigned>(std::min<std::int64_t>(s.count, 65535)));
  image_views_kernel<T><<<blocks, kMapThreads, 0, stream_of(exec)>>>(s, aligned, static_cast<const T*>(x), rows, to);
  check_launch("image_views_kernel");
}

}  // namespace

void image_views(const Exec& exec, const ImageViewShape& s, DType dtype, const void* x, const std::int32_t* rows,
                 void* y) {
  if (dtype != DType::float32 && !is_half(dtype))
    throw DTypeError("image_views: images are of a floating type, not " + std::string(to_string(dtype)));
  if (size_of(dtype) == sizeof(std::uint32_t))
    launch<std::uint32_t>(exec, s, x, rows, y);
  else
    launch<std::uint16_t>(exec, s, x, rows, y);
}

}  // namespace bantam::kernels::cuda
