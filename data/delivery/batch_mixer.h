// Internal: BatchMixer: mixes the samples of finished batches, on the host or on a device, and adds their soft targets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bantam/data/pipeline/mix.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam {

class BatchMixer {
 public:
  /// Mixes batches of `facts`' samples, of `shape` as the kernel reads them. Throws ConfigError and ShapeError as
  /// batch_targets and MixPlanner do.
  BatchMixer(const MixOptions& options, const DatasetFacts& facts, const kernels::ImageBatchShape& shape,
             std::uint64_t seed);

  /// Fields that batches have beside images: stored targets first, then the one that `mix` writes, if any.
  const std::vector<SampleField>& targets() const { return targets_; }
  /// Whether batches are changed at all.
  bool is_active() const { return options_.any(); }
  /// Whether `mix` reads a table, one entry a sample.
  bool has_table() const { return options_.mixes(); }
  void plan(std::int64_t epoch, std::int64_t first_place, std::span<kernels::SampleMix> table) const {
    planner_.plan(epoch, first_place, table);
  }
  /// `fields`: the batch's images and `targets()`, on the device of `exec`, as is `table` (null without one).
  void mix(const kernels::Exec& exec, const kernels::SampleMix* table, std::span<const Tensor> fields) const;

 private:
  MixOptions options_;
  std::vector<SampleField> targets_;
  bool writes_targets_;  // the last of them, from labels
  MixPlanner planner_;
};

}  // namespace bantam
