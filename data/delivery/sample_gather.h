// Internal: SampleGather: a batch's samples, as their path has them, into the batch's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "bantam/data/delivery/sample_path.h"

namespace bantam {

/// Some places of an epoch.
struct EpochPlaces {
  std::span<const std::int32_t> samples;
  std::int64_t epoch = 0;
  /// How often the epoch had each one's sample before: stages draw other random numbers then; empty: never.
  std::span<const std::int32_t> passes = {};
};

/// Writes samples into the columns of a batch. Values depend on (path, epoch, sample, pass) only. Thread-safe.
class SampleGather {
 public:
  explicit SampleGather(SamplePath path) : path_(std::move(path)) {}
  /// Writes sample i of `places` to row i of each of `columns`, one a field. Throws what reader and augmentations
  /// throw.
  void gather(const EpochPlaces& places, std::span<std::byte* const> columns, int threads) const;

 private:
  SamplePath path_;
};

}  // namespace bantam
