// A batch of images on the CPU, row by row: gather a block of pixels (pad, flip), then one vectorised scale and shift.
#include "bantam/kernels/input/image_batch.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/input/source_position.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kBlockPixels = 64;
constexpr std::int64_t kBlockValues = kBlockPixels * kMostScaledChannels;

/// scale and shift repeated for each pixel of a block; one value of each, repeated, where channels share it.
struct BlockAffine {
  float scale[kBlockValues], shift[kBlockValues];
};

BlockAffine make_block_affine(const ImageBatchShape& s) {
  BlockAffine affine;
  const std::int64_t factors = s.scales_channels() ? s.channels : 1;
  for (std::int64_t k = 0; k < kBlockValues; ++k) {
    affine.scale[k] = s.scale[k % factors];
    affine.shift[k] = s.shift[k % factors];
  }
  return affine;
}

float as_float(float value) { return value; }
float as_float(std::uint8_t value) { return static_cast<float>(static_cast<std::int32_t>(value)); }

template <class S>
BANTAM_NO_FUSED_MULTIPLY_ADD void scale_and_shift(const BlockAffine& affine, const S* pixels, std::int64_t count,
                                                  float* y) {
#pragma omp simd
  for (std::int64_t k = 0; k < count; ++k) {
    const float product = as_float(pixels[k]) * affine.scale[k];
    y[k] = product + affine.shift[k];
  }
}

/// Brightness and contrast. None is left out, not added: 0 would make 0 of -0.
void change_values(const ImagePlacement& p, std::int64_t count, float* y) {
  const float offset = p.offset, factor = p.factor;
  if (offset == 0.0f && factor == 1.0f) return;
#pragma omp simd
  for (std::int64_t k = 0; k < count; ++k) y[k] = (y[k] + offset) * factor;
}

/// One pixel at a time: flipped or padded runs of pixels. Output column j reads column first + step·j of `row`.
template <int kChannels, class S>
void gather_pixels(const ImageBatchShape& s, const S* row, std::int64_t first, std::int64_t step, std::int64_t count,
                   S* pixels) {
  const std::int64_t channels = kChannels > 0 ? kChannels : s.channels;
  for (std::int64_t j = 0; j < count; ++j, pixels += channels) {
    const std::int64_t column = source_position(first + step * j, s.in_w, s.pad_mode);
    for (std::int64_t c = 0; c < channels; ++c) pixels[c] = column < 0 ? S(0) : row[column * channels + c];
  }
}

/// `count` pixels of an output row, from output column j0 on, as stored values. `row` is null where the whole row is
/// padding.
template <class S>
void gather_block(const ImageBatchShape& s, const ImagePlacement& p, const S* row, std::int64_t j0, std::int64_t count,
                  S* pixels) {
  const std::int64_t first = p.left + (p.flip ? s.out_w - 1 - j0 : j0);
  if (row == nullptr) {
    std::fill_n(pixels, count * s.channels, S(0));
  } else if (!p.flip && first >= 0 && first + count <= s.in_w) {
    std::copy_n(row + first * s.channels, count * s.channels, pixels);
  } else if (s.channels == 3) {
    gather_pixels<3>(s, row, first, p.flip ? -1 : 1, count, pixels);
  } else if (s.channels == 1) {
    gather_pixels<1>(s, row, first, p.flip ? -1 : 1, count, pixels);
  } else {
    gather_pixels<0>(s, row, first, p.flip ? -1 : 1, count, pixels);
  }
}

/// Output pixels of row i in the placement's rectangle, among `count` from column j0 on.
template <class S>
void erase(const ImageBatchShape& s, const ImagePlacement& p, std::int64_t i, std::int64_t j0, std::int64_t count,
           S* pixels) {
  if (i < p.erase_top || i >= p.erase_top + p.erase_height) return;
  const std::int64_t begin = std::max<std::int64_t>(p.erase_left, j0);
  const std::int64_t end = std::min<std::int64_t>(p.erase_left + p.erase_width, j0 + count);
  for (std::int64_t j = begin; j < end; ++j)
    for (std::int64_t c = 0; c < s.channels; ++c) pixels[(j - j0) * s.channels + c] = static_cast<S>(s.erased[c]);
}

template <class S, class T>
void write_image(const ImageBatchShape& s, const BlockAffine& affine, const S* image, const ImagePlacement& p, T* y) {
  S pixels[kBlockValues];
  float values[kBlockValues];
  for (std::int64_t i = 0; i < s.out_h; ++i) {
    const std::int64_t row = source_position(i + p.top, s.in_h, s.pad_mode);
    const S* source = row < 0 ? nullptr : image + row * s.in_w * s.channels;
    for (std::int64_t j = 0; j < s.out_w; j += kBlockPixels) {
      const std::int64_t count = std::min(kBlockPixels, s.out_w - j);
      gather_block(s, p, source, j, count, pixels);
      erase(s, p, i, j, count, pixels);
      scale_and_shift(affine, pixels, count * s.channels, values);
      change_values(p, count * s.channels, values);
      narrow(values, y + (i * s.out_w + j) * s.channels, count * s.channels);
    }
  }
}

/// The same where a pixel may have more values than a block: pixel by pixel, a block of channels at a time.
template <class S, class T>
void write_deep_image(const ImageBatchShape& s, const BlockAffine& affine, const S* image, const ImagePlacement& p,
                      T* y) {
  const S zeros[kBlockValues] = {};
  S erased[kBlockValues];
  std::fill_n(erased, kBlockValues, static_cast<S>(s.erased[0]));
  float values[kBlockValues];
  for (std::int64_t i = 0; i < s.out_h; ++i) {
    const std::int64_t row = source_position(i + p.top, s.in_h, s.pad_mode);
    for (std::int64_t j = 0; j < s.out_w; ++j) {
      const std::int64_t column = source_position((p.flip ? s.out_w - 1 - j : j) + p.left, s.in_w, s.pad_mode);
      const bool is_erased = p.erases(i, j), inside = !is_erased && row >= 0 && column >= 0;
      const S* blank = is_erased ? erased : zeros;
      const S* pixel = inside ? image + (row * s.in_w + column) * s.channels : nullptr;
      for (std::int64_t c = 0; c < s.channels; c += kBlockValues) {
        const std::int64_t count = std::min(kBlockValues, s.channels - c);
        scale_and_shift(affine, inside ? pixel + c : blank, count, values);
        change_values(p, count, values);
        narrow(values, y + (i * s.out_w + j) * s.channels + c, count);
      }
    }
  }
}

template <class S>
void write_batch(const Exec& exec, const ImageBatchShape& shape, const S* images, const ImagePlacement* placements,
                 DType dtype, void* y) {
  const BlockAffine affine = make_block_affine(shape);
  const std::int64_t in_values = shape.in_h * shape.in_w * shape.channels;
  const std::int64_t out_values = shape.out_h * shape.out_w * shape.channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto write = shape.scales_channels() ? write_image<S, T> : write_deep_image<S, T>;
    parallel_parts(shape.batch, exec.threads, [&](std::int64_t b) {
      write(shape, affine, images + placements[b].image * in_values, placements[b],
            static_cast<T*>(y) + b * out_values);
    });
  });
}

}  // namespace

void image_batch(const Exec& exec, const ImageBatchShape& shape, const void* images, const ImagePlacement* placements,
                 DType dtype, void* y) {
  if (shape.stored == DType::uint8)
    write_batch(exec, shape, static_cast<const std::uint8_t*>(images), placements, dtype, y);
  else if (shape.stored == DType::float32)
    write_batch(exec, shape, static_cast<const float*>(images), placements, dtype, y);
  else
    throw DTypeError("image_batch: stored images are uint8 or float32, not " + std::string(to_string(shape.stored)));
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
