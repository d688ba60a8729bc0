// Internal: DeviceEpoch: a data set and an epoch's order on the device, and batches that the device makes from both.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bantam/data/pipeline/pipeline.h"
#include "bantam/engine/train/device_batches.h"
#include "bantam/kernels/input/image_batch.h"
#include "bantam/memory/device/device.h"

namespace bantam {

/// A data set in device memory: images (size, height, width, channels) or (size, features), labels (size) int32, as
/// bytes.
struct DeviceDataset {
  Tensor images, labels;
  Shape image_shape;                          ///< the shape of one image, as stored
  std::int64_t epoch_samples = 0;             ///< places of an epoch (of a rank's share of it)
  std::string target = std::string(kLabels);  ///< the labels' name in batches
};

/// The batches of one epoch after the other. The epoch's placements are uploaded once, at its start; the device counts
/// its own place in them. Finished batches lie in a ring that one kernel fills: the batches of `make` are its memory,
/// written again by later calls. On a meta device it allocates the same memory and computes nothing. Used by one
/// thread.
class DeviceEpoch : public DeviceBatches {
 public:
  /// `shape`: of a full batch. Allocates the ring and the table. Throws OutOfMemory.
  DeviceEpoch(Runtime& runtime, Device device, DeviceDataset dataset, const kernels::ImageBatchShape& shape,
              DType dtype);
  ~DeviceEpoch() override;
  DeviceEpoch(const DeviceEpoch&) = delete;
  DeviceEpoch& operator=(const DeviceEpoch&) = delete;

  /// A host buffer for the next epoch's placements, one a sample; waits until the previous ones have been copied.
  std::span<kernels::ImagePlacement> placements();
  /// Begins the epoch whose placements those are, of `samples` (fewer than there are, where batches are left out), at
  /// batch `first_batch`.
  void start(std::int64_t samples, std::int64_t first_batch);
  /// The next batch of the epoch, which has one, a short last one too, in memory of its own.
  Batch next(const Context& context);

  std::int64_t next_batch() const { return next_; }
  std::int64_t left() const override;
  std::int64_t most_at_once() const override;
  Batch make(const Context& context, std::int64_t i, std::int64_t count) override;
  void advance(std::int64_t count) override { next_ += count; }

 private:
  kernels::EpochTable table() const;
  void fill(const Context& context, std::int64_t offset, const Batch& into) const;
  Batch in_ring(std::int64_t batches, std::int64_t place) const;

  Device device_;
  Stream stream_;
  DeviceDataset dataset_;
  kernels::ImageBatchShape shape_;
  std::int64_t ring_batches_;
  Tensor table_, cursor_;
  Batch ring_;    // ring_batches_ batches in one
  Tensor host_;   // page-locked: where the cursor starts, then placements
  Event copied_;  // the last copy out of it
  std::int64_t samples_ = 0, next_ = 0;
};

}  // namespace bantam
