// Internal: SampleGather: a batch's samples, as their path has them, into the batch's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "bantam/data/delivery/sample_path.h"

namespace bantam {

/// What it writes depends on (path, epoch, sample) only. Thread-safe.
class SampleGather {
 public:
  explicit SampleGather(SamplePath path) : path_(std::move(path)) {}
  /// Writes sample `samples[i]` to row i of each of `columns`, one a field. Throws what reader and augmentations throw.
  void gather(std::span<const std::int32_t> samples, std::int64_t epoch, std::span<std::byte* const> columns,
              int threads) const;

 private:
  SamplePath path_;
};

}  // namespace bantam
