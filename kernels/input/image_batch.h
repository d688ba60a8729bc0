// From stored images, bytes or float32, to one batch as the model reads it: gather, pad, crop, flip, scale and shift,
// cast, in one pass.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

enum class PadMode : std::uint8_t { zero, reflect };

/// Channels that have factors of their own.
constexpr std::int64_t kMostScaledChannels = 8;

/// images (…, in_h, in_w, channels) of type `stored`, y (batch, out_h, out_w, channels).
struct ImageBatchShape {
  std::int64_t batch = 0, in_h = 0, in_w = 0, channels = 0, out_h = 0, out_w = 0;
  PadMode pad_mode =
      PadMode::zero;  ///< how positions outside the image read: 0 (before scaling), or mirrored without the edge
  float scale[kMostScaledChannels] = {};  ///< y = x·scale[c] + shift[c]; of more channels all have scale[0], shift[0]
  float shift[kMostScaledChannels] = {};
  float erased[kMostScaledChannels] = {};  ///< pixels of ImagePlacement's rectangle, before scaling, as scale
  DType stored = DType::uint8;             ///< or float32

  /// Whether each channel has a scale and a shift of its own.
  bool scales_channels() const { return channels <= kMostScaledChannels; }
};

/// Places one image: output (i, j) reads input (i + top, j + (flip ? out_w - 1 - j : j) …), exactly:
/// row i + top, column (flip ? out_w - 1 - j : j) + left. Negative and too large positions are padding.
struct ImagePlacement {
  std::int32_t image = 0;  ///< which image of `images`
  std::int16_t top = 0, left = 0;
  std::int32_t flip = 0;
  /// A rectangle of the output that reads `erased`; within it, and empty by default.
  std::int16_t erase_top = 0, erase_left = 0, erase_height = 0, erase_width = 0;
  /// Brightness and contrast of what is delivered: (pixel·scale[c] + shift[c] + offset)·factor, erased pixels and
  /// padding included.
  float offset = 0.0f, factor = 1.0f;

  bool erases(std::int64_t i, std::int64_t j) const {
    return i >= erase_top && i < erase_top + erase_height && j >= erase_left && j < erase_left + erase_width;
  }
};

/// y[b, i, j, c] = (pixel·scale[c] + shift[c] + offset)·factor in float32, each rounded, none fused (the same bits
/// everywhere), cast to `dtype`; offset 0 with factor 1 are left out. `placements` in device memory. Throws DTypeError.
using ImageBatch = void(const Exec&, const ImageBatchShape&, const void* images, const ImagePlacement* placements,
                        DType dtype, void* y);
/// labels_out[b] = labels[placements[b].image].
using LabelBatch = void(const Exec&, std::int64_t batch, const std::int32_t* labels, const ImagePlacement* placements,
                        std::int32_t* labels_out);

/// A data set and an order of its samples, all in device memory.
struct EpochTable {
  const void* images = nullptr;
  const std::int32_t* labels = nullptr;
  const ImagePlacement* placements = nullptr;  ///< in the epoch's order
  std::int64_t* cursor = nullptr;              ///< place of the next sample; read by the kernels
};
/// `image_batch` and `label_batch` of the `shape.batch` samples from place *cursor + offset on, in one pass.
using EpochBatch = void(const Exec&, const ImageBatchShape&, const EpochTable&, std::int64_t offset, DType dtype,
                        void* y, std::int32_t* labels_out);
/// *cursor += samples.
using AdvanceEpoch = void(const Exec&, const EpochTable&, std::int64_t samples);
BANTAM_DECLARE_KERNEL(ImageBatch, image_batch);
BANTAM_DECLARE_KERNEL(LabelBatch, label_batch);
BANTAM_DECLARE_KERNEL(EpochBatch, epoch_batch);
BANTAM_DECLARE_KERNEL(AdvanceEpoch, advance_epoch);

}  // namespace bantam::kernels
