// How sums over rows are cut into parts, for planning and for kernels alike: by shapes and target only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/memory/device/device.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

/// Parts that the rows of a (rows, channels) array are cut into when each channel is summed; at least 1. Each part
/// computes one partial result a channel; parts are added in order. Enough parts to fill a device, few enough that
/// partials stay small.
constexpr std::int64_t sum_parts(std::int64_t rows, std::int64_t channels, DeviceKind target) {
  if (rows <= 0 || channels <= 0) return 1;
  const bool cuda = target == DeviceKind::cuda;
  const std::int64_t by_work = rows * channels / (cuda ? 8192 : 32768);
  const std::int64_t by_rows = rows / 16;
  const std::int64_t by_memory = (std::int64_t{1} << 18) / channels;
  return std::clamp<std::int64_t>(std::min({by_work, by_rows, by_memory}), 1, cuda ? 512 : 64);
}

/// Channels of a block of a reduction over rows on CUDA: with float16, a row of them is one line of the cache.
inline constexpr std::int64_t kColumnChannels = 64;
/// Blocks of such a reduction, about: two for each multiprocessor of the reference GPU.
inline constexpr std::int64_t kColumnBlocks = 2 * kReferenceMultiprocessors;

/// Parts that the rows of a (rows, channels) array are cut into on CUDA, for each column of kColumnChannels channels:
/// about as many blocks in all as a large GPU runs at once, so that none waits for a second round; and no more than
/// there are tiles of at least 128 rows.
constexpr std::int64_t column_parts(std::int64_t rows, std::int64_t channels) {
  if (rows <= 0 || channels <= 0) return 1;
  const std::int64_t columns = (channels + kColumnChannels - 1) / kColumnChannels;
  return std::clamp<std::int64_t>(std::min(kColumnBlocks / columns, (rows + 127) / 128), 1, kColumnBlocks);
}

/// First row of part `part`: parts differ by at most one row, and none is empty where rows ≥ parts.
constexpr std::int64_t part_begin(std::int64_t rows, std::int64_t parts, std::int64_t part) {
  const std::int64_t each = rows / parts, longer = rows % parts;
  return part * each + std::min(part, longer);
}

}  // namespace bantam::kernels
