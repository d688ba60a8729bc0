// Work of making a batch: pixels that a crop can show, and what is written of them; of mixing its samples; and of
// views.
#include "bantam/kernels/common/work.h"

#include <algorithm>

#include "bantam/kernels/input/image_batch.h"
#include "bantam/kernels/input/image_views.h"
#include "bantam/kernels/input/mix_batch.h"

namespace bantam::kernels::work {
namespace {

constexpr std::int64_t kPlacement = sizeof(ImagePlacement), kLabel = sizeof(std::int32_t);

std::int64_t image_bytes(const ImageBatchShape& s, DType dtype) {
  const std::int64_t read = std::min(s.in_h, s.out_h) * std::min(s.in_w, s.out_w) * s.channels;
  return s.batch * (bytes_of(read, s.stored) + kPlacement + bytes_of(s.out_h * s.out_w * s.channels, dtype));
}

}  // namespace

void image_batch(const Exec& exec, const ImageBatchShape& s, const void*, const ImagePlacement*, DType dtype, void*) {
  note(exec, "image_batch", {.bytes = image_bytes(s, dtype)});
}
void label_batch(const Exec& exec, std::int64_t batch, const std::int32_t*, const ImagePlacement*, std::int32_t*) {
  note(exec, "label_batch", {.bytes = batch * (kPlacement + 2 * kLabel)});
}
void epoch_batch(const Exec& exec, const ImageBatchShape& s, const EpochTable&, std::int64_t, DType dtype, void*,
                 std::int32_t*) {
  note(exec, "epoch_batch", {.bytes = image_bytes(s, dtype) + s.batch * 2 * kLabel});
}
void advance_epoch(const Exec& exec, const EpochTable&, std::int64_t) {
  note(exec, "advance_epoch", {.bytes = 2 * static_cast<std::int64_t>(sizeof(std::int64_t))});
}
void image_views(const Exec& exec, const ImageViewShape& s, DType dtype, const void*, const std::int32_t* rows, void*) {
  const std::int64_t values = s.height * s.width * s.channels;
  note(exec, "image_views", {.bytes = s.count * (2 * bytes_of(values, dtype) + unless_null(rows, kLabel))});
}
void mix_images(const Exec& exec, const MixShape& s, const SampleMix*, DType dtype, void*) {
  const std::int64_t values = s.height * s.width * s.channels;
  note(exec, "mix_images",
       {.bytes = s.batch * (static_cast<std::int64_t>(sizeof(SampleMix)) + 2 * bytes_of(values, dtype))});
}
void mix_targets(const Exec& exec, const TargetMixShape& s, const SampleMix* mixes, std::int32_t* labels, float*) {
  const std::int64_t tables =
      (mixes != nullptr ? static_cast<std::int64_t>(sizeof(SampleMix)) : 0) + (labels != nullptr ? 2 * kLabel : 0);
  const std::int64_t targets = (s.from_labels ? 1 : 2) * s.classes * static_cast<std::int64_t>(sizeof(float));
  note(exec, "mix_targets", {.bytes = s.batch * (tables + targets)});
}

}  // namespace bantam::kernels::work
