// Inference of a configuration's network, timed on a device.
#pragma once

#include <cstdint>

#include "bantam/engine/runtime/runtime.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

struct PredictCase {
  std::int64_t batch = 1;
  Precision precision;
  int threads = 0;
  double seconds = 1.5;
};

struct PredictMeasurement {
  double ms = 0;           ///< median time of a call, from host memory to host memory
  double ms_99 = 0;        ///< which 99 of 100 calls need at most
  double resident_ms = 0;  ///< on a GPU, of inputs that lie there: median; else 0
  double images_per_s = 0;
  std::int64_t calls = 0;
  std::uint64_t planned_bytes = 0;
};

/// Calls of a Predictor with random weights and images, one after the other: some to warm up, then for so many seconds.
/// Throws OutOfMemory where it does not fit.
PredictMeasurement measure_predict(const RunConfig& config, const PredictCase& options);

}  // namespace bantam::run
