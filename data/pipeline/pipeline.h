// Pipeline options: what happens to a data set's images on their way into batches, and the plan of one batch that
// follows from them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/base/shape.h"
#include "bantam/data/augment/augmentation.h"
#include "bantam/data/pipeline/epoch_order.h"
#include "bantam/data/pipeline/mix.h"
#include "bantam/data/pipeline/stage_forms.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam {

/// Where samples lie while a run reads them. Batches have the same bits in all of them.
enum class CacheKind : std::uint8_t {
  ram,        ///< in host memory, read and decoded once; a GPU gets each batch by a copy
  automatic,  ///< whoever opens the data decides (decide_cache); until then the same as ram
  device,     ///< wholly in the step's device memory: only the choice of images goes up, an epoch at a time where steps
              ///< are launched several at once. Needs one int32 target and no host augmentation. The same as ram on a
              ///< CPU
  disk,       ///< in a packed file (PackedFile), written once; workers read each sample from there
  off         ///< nowhere: workers read and decode each sample whenever a batch has it, into the batch's own buffers
};

/// y = (x·scale - mean) / std for each channel; lists hold one value for all channels or one a channel.
struct NormalizeOptions {
  double scale = 1.0;
  std::vector<double> mean = {0.0};
  std::vector<double> std = {1.0};
};

/// Prefetching. Values never change batches, only when they are made.
struct PrefetchOptions {
  /// Batches made ahead; nothing: for a GPU found at run time, on the CPU two, and at least one more than explicit
  /// workers. On the CPU finished batches lie ready: this many times the bytes of one, which a plan counts.
  std::optional<std::int64_t> depth;
  /// Threads that make them; 0: made by `next` itself; nothing: found at run time.
  std::optional<std::int64_t> workers;
};

/// The stages of validation samples, where they do not follow from training's.
struct EvaluationStages {
  Augmentations augmentations;
  std::optional<NormalizeOptions> normalize;  ///< absent: training's
};

/// All stages. A default pipeline returns the images unchanged and unshuffled, in batches of one, without prefetch.
struct PipelineOptions {
  CacheKind cache = CacheKind::ram;
  std::string cache_folder;  ///< the folder of packed files; empty: the run's
  std::optional<ShuffleOptions> shuffle;
  EpochSampling sampling;
  NormalizeOptions normalize;
  Augmentations augmentations;                 ///< in order, those that have a device form only last
  std::optional<EvaluationStages> evaluation;  ///< absent: what evaluation_pipeline makes of the augmentations
  MixOptions mix;
  std::int64_t batch_size = 1;
  /// `size: auto`: batch_size is still to be solved from what fits the device; whoever does it clears this.
  bool batch_size_is_auto = false;
  std::int64_t most_batch_size = 0;    ///< bounds what is solved; 0: the data set's size
  std::int64_t batch_multiple_of = 0;  ///< the solved size is a multiple of it; 0: of 8, and below 8 any size
  bool drop_last = false;
  PrefetchOptions prefetch{.depth = 0, .workers = 0};
};

/// Whether images must get one size, and samples a batch.
enum class StagesFor : std::uint8_t { batches, survey };

/// Reads the list of stages for samples of `facts`. Order, checked: augmentations that a worker can apply (host or
/// region form), then normalize and those of device form alone in any order, then jitter, then one_hot, mixup and
/// cutmix; cache, shuffle, batch (the only one required) and prefetch, which change no sample, anywhere; each once. The
/// keys of batch are `size` (a number or auto) and, for auto, `max` and `multiple_of`. Throws ConfigError at the node,
/// also where images of differing sizes never get one size.
PipelineOptions read_pipeline(const ConfigNode& stages, const DatasetFacts& facts, StagesFor use = StagesFor::batches);

/// Reads `data.evaluation.pipeline`: augmentations and normalize alone. Throws ConfigError at the node.
EvaluationStages read_evaluation_stages(const ConfigNode& stages, const DatasetFacts& facts);

/// The pipeline of validation data: no shuffle, the given evaluation stages or else the augmentations in their
/// evaluation form (a crop is cut at the centre), no batch dropped.
PipelineOptions evaluation_pipeline(PipelineOptions options);

/// Checks options of any origin against the samples and resolves sizes: the kernel's view of one full batch; a vector
/// of features is a row of pixels of one channel. Throws ShapeError for images that have no one size, lists of a wrong
/// length, of more than 8 channels, a crop larger than the padded image, and for windows and mirroring of vectors;
/// ConfigError for batches below 1, for a host augmentation after one of device form and for a normalization whose
/// factor or offset is not finite in float32.
kernels::ImageBatchShape batch_shape(const PipelineOptions& options, const DatasetFacts& facts);
/// The same of images without targets.
kernels::ImageBatchShape batch_shape(const PipelineOptions& options, const Shape& image_shape,
                                     DType image_dtype = DType::uint8);

/// One image of a finished batch: (height, width, channels), or (features) where `stored` images are vectors.
Shape finished_image(const kernels::ImageBatchShape& shape, const Shape& stored);

/// Where and how each sample of one batch is read; a pure function.
class BatchPlanner {
 public:
  /// `placed`: stages of device form; `shape` is batch_shape's.
  BatchPlanner(Augmentations placed, const kernels::ImageBatchShape& shape, std::uint64_t seed)
      : seed_(seed), shape_(shape), placed_(std::move(placed)) {}
  /// Fills a placement for each sample of `order` (sample numbers of one batch), whose first is at `first_place` of the
  /// epoch. Random numbers are keyed by (seed, epoch) and counted by the place in the epoch. Thread-safe.
  void plan(std::span<const std::int32_t> order, std::int64_t epoch, std::int64_t first_place,
            std::span<kernels::ImagePlacement> out) const;

 private:
  std::uint64_t seed_;
  kernels::ImageBatchShape shape_;
  Augmentations placed_;
};

}  // namespace bantam
