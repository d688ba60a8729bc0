// The training loader alone: how many images a second it makes, with nobody computing on them.
#pragma once

#include <cstdint>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

struct LoaderMeasurement {
  std::int64_t images = 0, batches = 0, batch_size = 0;
  double seconds = 0;
  std::int64_t workers = 0, depth = 0;  ///< at the end: `auto` finds them
  double waited_seconds = 0;            ///< in which the caller waited for a batch
  double cpu_seconds = 0;               ///< of all threads
  double fetch_us = 0;                  ///< of one thread that reads one stored sample, without decoding it
  double stored_bytes = 0;              ///< of one sample

  double images_per_s() const { return static_cast<double>(images) / seconds; }
};

/// Reads the configuration's training batches for so long, after a second in which workers are found; an epoch's end is
/// followed by the next epoch. The batch size is solved already. Throws ConfigError without data, and what opening and
/// reading them throws.
LoaderMeasurement measure_loader(const RunConfig& config, int threads, double seconds);

}  // namespace bantam::run
