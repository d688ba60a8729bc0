// A batch of images on CUDA: a thread writes four neighbouring values of one image; multiply and add round apart, as on
// the CPU.
#include <limits>

#include "bantam/base/error.h"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/input/image_batch.h"
#include "bantam/kernels/input/source_position.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kValues = 4;  // a thread

/// Where an output value lies in its image.
struct OutputPlace {
  int i, j, c;
  __device__ void advance(int out_w, int channels) {
    if (++c < channels) return;
    c = 0;
    if (++j < out_w) return;
    j = 0;
    ++i;
  }
};

__device__ inline bool erases(const ImagePlacement& p, const OutputPlace& at) {
  return static_cast<unsigned>(at.i - p.erase_top) < static_cast<unsigned>(p.erase_height) &&
         static_cast<unsigned>(at.j - p.erase_left) < static_cast<unsigned>(p.erase_width);
}

template <class S>
__device__ inline float pixel_value(const ImageBatchShape& s, const S* image, const ImagePlacement& p,
                                    const OutputPlace& at) {
  const int out_w = static_cast<int>(s.out_w), in_w = static_cast<int>(s.in_w);
  const int row = source_position(at.i + p.top, static_cast<int>(s.in_h), s.pad_mode);
  const int column = source_position((p.flip ? out_w - 1 - at.j : at.j) + p.left, in_w, s.pad_mode);
  const int factor = s.channels <= kMostScaledChannels ? at.c : 0;
  float pixel = 0;
  if (erases(p, at))
    pixel = s.erased[factor];
  else if (row >= 0 && column >= 0)
    pixel = static_cast<float>(image[(static_cast<std::int64_t>(row) * in_w + column) * s.channels + at.c]);
  const float value = __fadd_rn(__fmul_rn(pixel, s.scale[factor]), s.shift[factor]);
  if (p.offset == 0.0f && p.factor == 1.0f) return value;  // adding 0 would make 0 of -0
  return __fmul_rn(__fadd_rn(value, p.offset), p.factor);
}

/// Images go over blockIdx.y, groups of four values over blockIdx.x. With a cursor, placements and labels are an
/// epoch's.
template <class S, class T>
__global__ void image_batch_kernel(const __grid_constant__ ImageBatchShape s, bool aligned,
                                   const __grid_constant__ EpochTable epoch, std::int64_t offset, T* y,
                                   std::int32_t* labels_out) {
  const S* images = static_cast<const S*>(epoch.images);
  const ImagePlacement* placements = epoch.placements + (epoch.cursor != nullptr ? *epoch.cursor + offset : 0);
  const int channels = static_cast<int>(s.channels), out_w = static_cast<int>(s.out_w);
  const std::int64_t total = s.out_h * s.out_w * s.channels;
  for (std::int64_t b = blockIdx.y; b < s.batch; b += gridDim.y) {
    const ImagePlacement p = placements[b];
    const S* image = images + p.image * (s.in_h * s.in_w * s.channels);
    if (labels_out != nullptr && grid_thread() == 0) labels_out[b] = epoch.labels[p.image];
    for (std::int64_t first = grid_thread() * kValues; first < total; first += grid_threads() * kValues) {
      const int pixel = static_cast<int>(first) / channels;
      OutputPlace at{pixel / out_w, pixel % out_w, static_cast<int>(first) % channels};
      const int valid = total - first < kValues ? static_cast<int>(total - first) : kValues;
      float values[kValues];
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        values[k] = k < valid ? pixel_value(s, image, p, at) : 0.0f;
        at.advance(out_w, channels);
      }
      T* to = y + b * total + first;
      if (aligned) {
        repack<kValues>(values, to);
      } else {
#pragma unroll
        for (int k = 0; k < kValues; ++k) {
          if (k < valid) to[k] = from_float<T>(values[k]);
        }
      }
    }
  }
}

__global__ void label_batch_kernel(std::int64_t batch, const std::int32_t* labels, const ImagePlacement* placements,
                                   std::int32_t* labels_out) {
  for (std::int64_t b = grid_thread(); b < batch; b += grid_threads()) labels_out[b] = labels[placements[b].image];
}

__global__ void advance_epoch_kernel(std::int64_t* cursor, std::int64_t samples) { *cursor += samples; }

template <class S>
void launch_stored(const Exec& exec, const ImageBatchShape& shape, const EpochTable& epoch, std::int64_t offset,
                   DType dtype, void* y, std::int32_t* labels_out) {
  const std::int64_t total = shape.out_h * shape.out_w * shape.channels;
  if (shape.batch <= 0 || total <= 0) return;
  if (total > std::numeric_limits<std::int32_t>::max() || shape.in_w > (1 << 29) || shape.in_h > (1 << 29)) {
    throw ShapeError("image_batch: an image has more than 2^31 - 1 values");
  }
  const unsigned rows = static_cast<unsigned>(std::min<std::int64_t>(shape.batch, 65535));
  const dim3 blocks(stride_blocks((total + kValues - 1) / kValues), rows);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool aligned = total % kValues == 0 && packs_aligned<T, kValues>(y);
    image_batch_kernel<S>
        <<<blocks, kMapThreads, 0, stream_of(exec)>>>(shape, aligned, epoch, offset, static_cast<T*>(y), labels_out);
    check_launch("image_batch_kernel");
  });
}

void launch_images(const Exec& exec, const ImageBatchShape& shape, const EpochTable& epoch, std::int64_t offset,
                   DType dtype, void* y, std::int32_t* labels_out) {
  if (shape.stored == DType::uint8)
    launch_stored<std::uint8_t>(exec, shape, epoch, offset, dtype, y, labels_out);
  else if (shape.stored == DType::float32)
    launch_stored<float>(exec, shape, epoch, offset, dtype, y, labels_out);
  else
    throw DTypeError("image_batch: stored images are uint8 or float32, not " + std::string(to_string(shape.stored)));
}

}  // namespace

void image_batch(const Exec& exec, const ImageBatchShape& shape, const void* images, const ImagePlacement* placements,
                 DType dtype, void* y) {
  launch_images(exec, shape, {.images = images, .placements = placements}, 0, dtype, y, nullptr);
}

void epoch_batch(const Exec& exec, const ImageBatchShape& shape, const EpochTable& epoch, std::int64_t offset,
                 DType dtype, void* y, std::int32_t* labels_out) {
  launch_images(exec, shape, epoch, offset, dtype, y, labels_out);
}

void advance_epoch(const Exec& exec, const EpochTable& epoch, std::int64_t samples) {
  advance_epoch_kernel<<<1, 1, 0, stream_of(exec)>>>(epoch.cursor, samples);
  check_launch("advance_epoch_kernel");
}

void label_batch(const Exec& exec, std::int64_t batch, const std::int32_t* labels, const ImagePlacement* placements,
                 std::int32_t* labels_out) {
  if (batch <= 0) return;
  label_batch_kernel<<<stride_blocks(batch), kMapThreads, 0, stream_of(exec)>>>(batch, labels, placements, labels_out);
  check_launch("label_batch_kernel");
}

}  // namespace bantam::kernels::cuda
