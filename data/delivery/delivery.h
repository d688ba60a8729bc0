// Internal: how a batch gets to the step's device: made on the host directly, or staged through page-locked and device
// buffers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bantam/data/delivery/batch_mixer.h"
#include "bantam/data/delivery/device_epoch.h"
#include "bantam/data/delivery/sample_gather.h"
#include "bantam/data/formats/dataset.h"
#include "bantam/data/pipeline/pipeline.h"
#include "bantam/engine/step/batch_source.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam {

/// Some of a batch's rows.
struct RowRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

/// One batch to make: consecutive samples of an epoch's order.
struct BatchRequest {
  std::shared_ptr<const std::vector<std::int32_t>> order;
  std::int64_t epoch = 0;
  std::int64_t first = 0;  ///< place in the epoch
  std::int64_t size = 0;
  std::shared_ptr<const std::vector<std::int32_t>> passes = nullptr;  ///< EpochPlaces::passes of the epoch; null: none

  std::span<const std::int32_t> samples(RowRange rows) const { return part(*order, rows); }
  EpochPlaces places(RowRange rows) const {
    return {samples(rows), epoch, passes == nullptr ? std::span<const std::int32_t>() : part(*passes, rows)};
  }

 private:
  std::span<const std::int32_t> part(const std::vector<std::int32_t>& of_epoch, RowRange rows) const {
    return std::span(of_epoch).subspan(static_cast<std::size_t>(first + rows.begin),
                                       static_cast<std::size_t>(rows.size()));
  }
};

/// The arguments of both kinds of delivery.
struct DeliveryParts {
  Runtime* runtime = nullptr;
  DatasetFacts facts;
  std::int64_t epoch_samples = 0;
  std::shared_ptr<const Dataset> dataset;      ///< the samples of the split in host memory; null: none are
  std::shared_ptr<const SampleGather> gather;  ///< from there, or from the format's reader
  bool changes_samples = false;    ///< augmentations of host form: images are not used as the dataset has them
  kernels::ImageBatchShape shape;  ///< the shape of a full batch
  BatchPlanner planner;
  BatchMixer mixer;  ///< mixes finished batches
  Device device;
};

/// Batches on their way, first in, first out. One thread, the source's, calls it; only the work it hands out runs
/// elsewhere, and not while `drop` or the destructor runs.
class BatchDelivery {
 public:
  /// Work for workers: fills rows [begin, end) of the batch with the threads it may use. Disjoint rows may be filled at
  /// once. Empty where there is nothing to do (meta devices).
  using Work = std::function<void(RowRange rows, int threads)>;

  virtual ~BatchDelivery() = default;
  /// Reserves the buffers of one more batch and returns the work that fills them. `dtype` is that of finished images.
  virtual Work prepare(const BatchRequest& request, DType dtype) = 0;
  /// Writes the oldest prepared batch, whose work is done, to `batch` (all fields but the index).
  virtual void deliver(const Context& context, Batch& batch) = 0;
  /// The work of the oldest prepared batch is done before the batch is requested: its copy may start.
  virtual void send_ahead() {}
  /// Forgets all prepared batches.
  virtual void drop() = 0;
  /// Whether `prepare` needs the final type.
  virtual bool needs_dtype() const = 0;
  /// The data set where it lies on the device; null where it does not.
  virtual const DeviceDataset* on_device() const { return nullptr; }
};

/// For steps on the CPU: workers make finished batches, of images where they lie in the data set, or else of samples
/// gathered into a buffer beside the batch.
std::unique_ptr<BatchDelivery> make_direct_delivery(DeliveryParts parts);

/// For steps on a GPU: workers fill page-locked buffers, a copy stream uploads them, a kernel of the step's stream
/// makes the batch. With CacheKind::device the data set, which has an int32 target, is uploaded here, once. Works on
/// the CPU too, where copies are plain copies.
std::unique_ptr<BatchDelivery> make_staged_delivery(DeliveryParts parts, CacheKind cache);

}  // namespace bantam
