// BatchSource: where the training step gets batches from. data/ implements it; so can any program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

BANTAM_API_BEGIN
namespace bantam {

/// One batch on the step's device: named tensors (size, …), one row a sample.
struct Batch {
  TensorMap tensors = {};
  std::int64_t size = 0;
  std::int64_t index = 0;  ///< place in the epoch

  /// Throws Error naming what there is, where the batch has no such tensor.
  const Tensor& at(std::string_view name) const { return tensors.at(name); }
};

class BANTAM_INTERNAL DeviceBatches;

/// Batches of an epoch, in order. Batch b of epoch e is a pure function of (seed, e, b). Used by one thread at a time.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// The tensors of each batch: the model's input (kImages) and whatever the loss and the metrics read.
  virtual std::vector<TensorFacts> tensors() const = 0;
  /// The shape of kImages, (height, width, channels), from `tensors`. Throws Error where there are none.
  Shape image_shape() const;
  /// The number of classes of kLabels, from `tensors`; 0 where there are no class numbers.
  std::int64_t classes() const;
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Numbers in the data set of the samples of batch `index` of `epoch`, in their order; empty: not known.
  virtual std::vector<std::int64_t> sample_numbers(std::int64_t epoch, std::int64_t index) {
    (void)epoch;
    (void)index;
    return {};
  }
  /// Most samples in a batch (all but a short last one have it).
  virtual std::int64_t batch_size() const = 0;
  virtual std::int64_t batches_per_epoch() const = 0;
  /// Samples of batch `index`: batch_size, or fewer in a short last batch.
  virtual std::int64_t size_of(std::int64_t index) const = 0;
  /// Samples of an epoch: of all its batches. A stand-in with fewer batches says that of the source it stands for.
  virtual std::int64_t epoch_samples() const;
  /// From the next `start` on, `next` passes over other ranks' batches: of every `of` batches, counted from the epoch's
  /// beginning, it returns `count` from the `first` on; epochs are then started at multiples of `of`. Sizes and numbers
  /// stay those of all batches. The base class throws Error, unless that is all of them.
  virtual void set_share(std::int64_t first, std::int64_t count, std::int64_t of);
  /// The next batch will be `first_batch` of `epoch`. Anything prefetched for another place is dropped.
  virtual void start(std::int64_t epoch, std::int64_t first_batch = 0) = 0;
  /// The next batch of the epoch, ready in order of the context's stream; false at the epoch's end. Throws DataError.
  virtual bool next(const Context& context, Batch& batch) = 0;
  /// The epoch's full batches made by the device itself (internal), from the place where `next` is, which they
  /// move on; null where the host has a part in them, or for other reasons of the source. Of the type that `context`
  /// computes in, and in use from then on, also by `next`. The source's own; there is one. Throws OutOfMemory.
  virtual DeviceBatches* device_batches(const Context& context) {
    (void)context;
    return nullptr;
  }
  /// Seconds callers of `next` waited for data since `start`.
  virtual double waited_seconds() const { return 0.0; }
};

/// Updates of `accumulate` batches for each replica that an epoch of so many batches has. With one replica the last one
/// may have fewer batches; with several, batches that are too few for an update are left out.
inline std::int64_t updates_of(std::int64_t batches, std::int64_t accumulate, std::int64_t replicas = 1) {
  const std::int64_t each = accumulate * replicas;
  return replicas > 1 ? batches / each : (batches + each - 1) / each;
}

}  // namespace bantam
BANTAM_API_END
