// One training step of a configuration on synthetic batches, timed on a device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bantam/run/bench/step_session.h"
#include "bantam/run/ranks/run_ranks.h"

namespace bantam::run {

struct StepMeasurement {
  double ms_per_step = 0;  ///< median of windows of at least 50 ms
  double images_per_s = 0;
  std::int64_t windows = 0;
  double kernels = 0;  ///< a step's, of captured ones; else 0
  std::int64_t parameters = 0;
  MemoryStats memory;  ///< after some steps with one batch resident; peaks are of the whole run up to there
};

/// Measures a step: warm-up, a window grown until it lasts 50 ms, then windows for `seconds`, the
/// median. Memory is read after the warm-up, with one batch resident; timing goes round 8 different ones.
StepMeasurement measure_step(const RunConfig& config, const StepCase& options, int threads, double seconds);

/// A step on several ranks, each of which has one replica.
struct RanksMeasurement {
  StepMeasurement step;  ///< images of all ranks; memory is this rank's
  /// On GPUs, in milliseconds: one exchange alone; the step without exchanges; and what a step waits for its exchange
  /// after its backward pass, on the rank that comes there last, since others wait for that one.
  std::optional<double> exchange_ms, alone_ms, wait_ms;
  std::string transport;  ///< TrainingStep::transport

  /// The share of the exchange that the step does beside its other work: 1 - wait / exchange. What it costs that
  /// work (memory, links and the card's power are shared) is in the step's time: compare with `alone_ms`.
  std::optional<double> hidden() const;
};

/// measure_step where this is one of several ranks: each trains a batch of `options.batch` on the configuration's
/// device. Windows are the slowest rank's. All ranks call it with equal arguments, but for the device. Throws
/// ConfigError for numbers of ranks that are no power of two, CommunicationError.
RanksMeasurement measure_step_on_ranks(const RunConfig& config, const StepCase& options, int threads, double seconds,
                                       const RunRanks& ranks);

/// The extra time of the measured step of `row` over one without recompute, as a share of that one, which is measured
/// too, without the budget; nullopt where that step does not fit.
std::optional<double> measure_extra(const RunConfig& config, const StepCase& row, const StepMeasurement& measured,
                                    int threads, double seconds);

}  // namespace bantam::run
