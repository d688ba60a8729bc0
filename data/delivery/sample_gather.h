// Internal: SampleGather: a batch's samples, read and changed by host augmentations, into the batch's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bantam/data/augment/augmentation.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// What it writes depends on (reader, augmentations, seed, epoch, sample) only. Thread-safe.
class SampleGather {
 public:
  SampleGather(std::shared_ptr<const SampleReader> reader, Augmentations augmentations, std::uint64_t seed);
  /// Writes sample `samples[i]` to row i of each of `columns`, one a field. Throws what reader and augmentations throw.
  void gather(std::span<const std::int32_t> samples, std::int64_t epoch, std::span<std::byte* const> columns,
              int threads) const;

 private:
  std::shared_ptr<const SampleReader> reader_;
  Augmentations augmentations_;
  std::uint64_t seed_;
  std::vector<SampleField> fields_;
};

}  // namespace bantam
