// The training loader alone: how many images a second it makes, with nobody computing on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// The files that a GPU's decoder has read since its start, and the memory that is reserved for it.
struct GpuDecoding {
  std::int64_t gpu_files = 0, cpu_files = 0;
  std::uint64_t device_bytes = 0, host_bytes = 0;
  std::uint64_t peak_device_bytes = 0, peak_host_bytes = 0;  ///< nvJPEG's own part, at most
};

struct LoaderMeasurement {
  std::int64_t images = 0, batches = 0, batch_size = 0;
  double seconds = 0;
  std::int64_t workers = 0, depth = 0;  ///< at the end: `auto` finds them
  double waited_seconds = 0;            ///< in which the caller waited for a batch
  double cpu_seconds = 0;               ///< the time of all threads together
  double fetch_us = 0;                  ///< of one thread that reads one stored sample, without decoding it
  double stored_bytes = 0;              ///< of one sample
  std::string decoder;                  ///< OpenedData's; "" where there are no image files
  std::optional<GpuDecoding> gpu;       ///< where a GPU decodes

  double images_per_s() const { return static_cast<double>(images) / seconds; }
};

/// Reads the configuration's training batches for so long, after a second in which workers are found; an epoch's end is
/// followed by the next epoch. The batch size is solved already. Throws ConfigError without data, and what opening and
/// reading them throws.
LoaderMeasurement measure_loader(const RunConfig& config, int threads, double seconds);

}  // namespace bantam::run
