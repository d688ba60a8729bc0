// Augmentation: a random change of training samples, a pure function of (seed, epoch, sample). The built-in ones are
// entries of a table, to which programs add their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/config/config.h"
#include "bantam/base/config/registry.h"
#include "bantam/base/philox.h"
#include "bantam/data/formats/sample_reader.h"

BANTAM_API_BEGIN
namespace bantam {
namespace kernels {
struct BANTAM_INTERNAL ImageBatchShape;
struct BANTAM_INTERNAL ImagePlacement;
}  // namespace kernels

/// A sample on its way into a batch, as its reader wrote it and earlier augmentations changed it.
struct AugmentedSample {
  std::span<const SampleField> fields;            ///< images first, then the targets
  std::span<const std::span<std::byte>> buffers;  ///< one a field, to be changed in place; sizes stay
  std::int64_t index = 0;                         ///< in its split
  std::int64_t epoch = 0;                         ///< from 0, also where the sample comes again within it
};

/// Which sample is changed, and when: for stages whose choices follow from more than their random numbers.
struct SampleVisit {
  std::uint64_t seed = 0;   ///< the loader's seed
  std::int64_t epoch = 0;   ///< from 0
  std::int64_t sample = 0;  ///< in its split
};

/// One stage that changes samples. It has one or two of three forms:
///
/// - *Host form* (the default): `apply` changes a sample's stored pixels, and where it likes its targets, on a worker
///   thread between reading and batching. It works with `cache: ram` and `off`; with `cache: device`, and in captured
///   steps, no worker sees the samples, so the first is refused and the second run planned.
/// - *Region form*: a choice of a window, which is resampled to a size of the stage's own and may be mirrored, of the
///   image and of masks alike, on a worker thread, as part of decoding where the image is a file. `region` says it.
///   Images of differing sizes get one size by it. The first stages of a pipeline that have this form and no chance
///   in it (`resize`, `center_crop`) belong to reading: a cache keeps their results.
/// - *Device form*, that of the built-in ones: a choice of a window and of mirroring, which the kernel image_batch
///   applies as it reads the stored pixels, on the CPU and on GPUs, beside normalising them. `window` and `place` say
///   it, `apply` is not called.
///
/// In a pipeline host and region forms come first, in any order. A stage of region and device form is used in its
/// device form, unless a stage of another form follows it, images have no one size yet, or targets are a mask. An
/// object serves all epochs and any number of threads at once, so it does not change; randomness comes from its
/// arguments alone.
class Augmentation {
 public:
  virtual ~Augmentation() = default;
  /// The stage's name, for messages. The random numbers of a host form belong to this name.
  virtual std::string_view name() const = 0;
  /// The stages that validation samples pass in its place, none of which has chance; empty: none.
  virtual std::vector<std::shared_ptr<const Augmentation>> for_evaluation() const { return {}; }

  /// Throws ShapeError where images (height, width, channels) of that type do not suit it; an extent of 0 is not known.
  virtual void check_images(const Shape& images, DType dtype) const {
    (void)images;
    (void)dtype;
  }

  /// The class number that it writes to pixels of masks that come from outside; none where it moves no masks.
  virtual std::optional<std::int32_t> mask_fill() const { return std::nullopt; }

  /// Whether `apply` does something: where neither of the other forms does it all.
  virtual bool has_host_form() const { return !has_region_form() && !has_device_form(); }
  /// Host form. `random` is keyed by (seed, epoch, name, sample), and how often the sample came before in the epoch
  /// (data.sampling): neither workers nor the sample's place in the epoch change it.
  virtual void apply(AugmentedSample& sample, PhiloxSequence& random) const {
    (void)sample;
    (void)random;
  }

  virtual bool has_region_form() const { return false; }
  /// Region form: the size that images of `size` get (0: not known, before and after). Throws ShapeError where the
  /// images do not suit it.
  virtual ImageSize size_after(ImageSize size) const { return size; }
  /// Region form: what becomes of one image of `size`. `random` as in `apply`.
  virtual Sampling region(ImageSize size, PhiloxSequence& random) const {
    (void)random;
    return {.window = size, .size = size};
  }
  /// The pipeline calls this one. It returns `region`, unless a stage overrides it to choose by the visit, too.
  virtual Sampling region_at(const SampleVisit& visit, ImageSize size, PhiloxSequence& random) const {
    (void)visit;
    return region(size, random);
  }
  /// Whether random numbers matter: false for `resize`, `center_crop`, and all that `for_evaluation` returns.
  virtual bool has_chance() const { return true; }

  virtual bool has_device_form() const { return false; }
  /// Device form: sets out_h, out_w and pad_mode of a batch whose input sizes are set. Throws ShapeError where the
  /// images do not suit it.
  virtual void window(kernels::ImageBatchShape& shape) const { (void)shape; }
  /// Device form: moves the window's corner, or mirrors. `random` is keyed by (seed, epoch) and the place in the epoch,
  /// and the same for all device forms of a sample: the built-in crop uses words 0 and 1, the flip word 2, erasing word
  /// 3, as jitter does.
  virtual void place(const kernels::ImageBatchShape& shape, const PhiloxWords& random,
                     kernels::ImagePlacement& placement) const {
    (void)shape;
    (void)random;
    (void)placement;
  }
  /// The pipeline calls this one. It calls `place`, unless a stage overrides it to choose by the visit, too.
  virtual void place_at(const SampleVisit& visit, const kernels::ImageBatchShape& shape, const PhiloxWords& random,
                        kernels::ImagePlacement& placement) const {
    (void)visit;
    place(shape, random, placement);
  }
  /// Device form: whether windows may reach beyond the image where that reads as black pixels: then it has to stand
  /// before a `normalize` that shifts values.
  virtual bool pads_with_black() const { return false; }
};

using Augmentations = std::vector<std::shared_ptr<const Augmentation>>;

/// Makes an augmentation of its options; the caller refuses the keys that nobody asked for. Throws ConfigError.
using AugmentationFactory = std::function<std::shared_ptr<const Augmentation>(ConfigMap& options)>;

/// The table: stages of `data.pipeline` beside cache, shuffle, normalize, batch and prefetch. A program adds one before
/// it reads a configuration that names it:
///
///     augmentations().add("cutout", [](ConfigMap& options) {
///       return std::make_shared<Cutout>(options.integer("size", {.min = 1}));
///     });
Registry<AugmentationFactory>& augmentations();

/// The random numbers of a stage's host or region form for sample `index` in `epoch`.
PhiloxSequence stage_random(const Augmentation& stage, std::uint64_t seed, std::int64_t epoch, std::int64_t index);

}  // namespace bantam
BANTAM_API_END
