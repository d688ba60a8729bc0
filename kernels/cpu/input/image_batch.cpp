// A batch of images on the CPU, row by row: gather a block of pixels (pad, flip), then one vectorised scale and shift.
#include "bantam/kernels/contracts/input/image_batch.h"

#include <algorithm>
#include <cstring>

#include "bantam/base/parallel.h"
#include "bantam/kernels/cpu/device/convert.h"

// A fused multiply-add would round once where CUDA's kernel rounds twice. Clang does not fuse across statements.
#if defined(__GNUC__) && !defined(__clang__)
#define BANTAM_NO_FUSED_MULTIPLY_ADD __attribute__((optimize("fp-contract=off")))
#else
#define BANTAM_NO_FUSED_MULTIPLY_ADD
#endif

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kBlockPixels = 64;
constexpr std::int64_t kBlockValues = kBlockPixels * 8;  // at most 8 channels

/// scale and shift repeated for each pixel of a block.
struct BlockAffine {
  float scale[kBlockValues], shift[kBlockValues];
};

BlockAffine make_block_affine(const ImageBatchShape& s) {
  BlockAffine affine;
  for (std::int64_t k = 0; k < kBlockPixels * s.channels; ++k) {
    affine.scale[k] = s.scale[k % s.channels];
    affine.shift[k] = s.shift[k % s.channels];
  }
  return affine;
}

BANTAM_NO_FUSED_MULTIPLY_ADD void scale_and_shift(const BlockAffine& affine, const std::uint8_t* pixels,
                                                  std::int64_t count, float* y) {
#pragma omp simd
  for (std::int64_t k = 0; k < count; ++k) {
    const float product = static_cast<float>(static_cast<std::int32_t>(pixels[k])) * affine.scale[k];
    y[k] = product + affine.shift[k];
  }
}

/// Position in [0, extent) that `position` reads, or -1 where it reads zero.
std::int64_t source_position(std::int64_t position, std::int64_t extent, PadMode mode) {
  if (position >= 0 && position < extent) return position;
  if (mode == PadMode::zero) return -1;
  if (extent == 1) return 0;
  const std::int64_t period = 2 * (extent - 1);
  const std::int64_t p = ((position % period) + period) % period;
  return p < extent ? p : period - p;
}

/// One pixel at a time: flipped or padded runs of pixels. Output column j reads column first + step·j of `row`.
template <int kChannels>
void gather_pixels(const ImageBatchShape& s, const std::uint8_t* row, std::int64_t first, std::int64_t step,
                   std::int64_t count, std::uint8_t* pixels) {
  const std::int64_t channels = kChannels > 0 ? kChannels : s.channels;
  for (std::int64_t j = 0; j < count; ++j, pixels += channels) {
    const std::int64_t column = source_position(first + step * j, s.in_w, s.pad_mode);
    for (std::int64_t c = 0; c < channels; ++c) pixels[c] = column < 0 ? 0 : row[column * channels + c];
  }
}

/// `count` pixels of an output row, from output column j0 on, as stored values. `row` is null where the whole row is
/// padding.
void gather_block(const ImageBatchShape& s, const ImagePlacement& p, const std::uint8_t* row, std::int64_t j0,
                  std::int64_t count, std::uint8_t* pixels) {
  const std::int64_t first = p.left + (p.flip ? s.out_w - 1 - j0 : j0);
  if (row == nullptr) {
    std::memset(pixels, 0, static_cast<std::size_t>(count * s.channels));
  } else if (!p.flip && first >= 0 && first + count <= s.in_w) {
    std::memcpy(pixels, row + first * s.channels, static_cast<std::size_t>(count * s.channels));
  } else if (s.channels == 3) {
    gather_pixels<3>(s, row, first, p.flip ? -1 : 1, count, pixels);
  } else if (s.channels == 1) {
    gather_pixels<1>(s, row, first, p.flip ? -1 : 1, count, pixels);
  } else {
    gather_pixels<0>(s, row, first, p.flip ? -1 : 1, count, pixels);
  }
}

template <class T>
void write_image(const ImageBatchShape& s, const BlockAffine& affine, const std::uint8_t* image,
                 const ImagePlacement& p, T* y) {
  std::uint8_t pixels[kBlockValues];
  float values[kBlockValues];
  for (std::int64_t i = 0; i < s.out_h; ++i) {
    const std::int64_t row = source_position(i + p.top, s.in_h, s.pad_mode);
    const std::uint8_t* source = row < 0 ? nullptr : image + row * s.in_w * s.channels;
    for (std::int64_t j = 0; j < s.out_w; j += kBlockPixels) {
      const std::int64_t count = std::min(kBlockPixels, s.out_w - j);
      gather_block(s, p, source, j, count, pixels);
      scale_and_shift(affine, pixels, count * s.channels, values);
      narrow(values, y + (i * s.out_w + j) * s.channels, count * s.channels);
    }
  }
}

}  // namespace

void image_batch(const Exec& exec, const ImageBatchShape& shape, const std::uint8_t* images,
                 const ImagePlacement* placements, DType dtype, void* y) {
  const BlockAffine affine = make_block_affine(shape);
  const std::int64_t in_values = shape.in_h * shape.in_w * shape.channels;
  const std::int64_t out_values = shape.out_h * shape.out_w * shape.channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_parts(shape.batch, exec.threads, [&](std::int64_t b) {
      const std::uint8_t* image = images + placements[b].image * in_values;
      write_image(shape, affine, image, placements[b], static_cast<T*>(y) + b * out_values);
    });
  });
}

void label_batch(const Exec&, std::int64_t batch, const std::int32_t* labels, const ImagePlacement* placements,
                 std::int32_t* labels_out) {
  for (std::int64_t b = 0; b < batch; ++b) labels_out[b] = labels[placements[b].image];
}

void epoch_batch(const Exec& exec, const ImageBatchShape& shape, const EpochTable& epoch, std::int64_t offset,
                 DType dtype, void* y, std::int32_t* labels_out) {
  const ImagePlacement* placements = epoch.placements + *epoch.cursor + offset;
  image_batch(exec, shape, epoch.images, placements, dtype, y);
  label_batch(exec, shape.batch, epoch.labels, placements, labels_out);
}

void advance_epoch(const Exec&, const EpochTable& epoch, std::int64_t samples) { *epoch.cursor += samples; }

}  // namespace bantam::kernels::cpu
