// The learning-rate range test (Smith 2017): a short run whose learning rate grows from update to update, and what its
// losses say.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

struct RangeTestOptions {
  double from = 1e-7;          ///< learning rate of the first update
  double to = 1;               ///< the rate of the last update; rates between grow by one factor
  std::int64_t updates = 100;  ///< at least 10
  int threads = 0;             ///< of the CPU; 0: all processors
};

/// One update.
struct RangeTestPoint {
  double learning_rate = 0;
  double loss = 0;      ///< the loss of its batch
  double smoothed = 0;  ///< exponential mean of the losses so far, kRangeTestMemory of it each, without its bias
};

inline constexpr double kRangeTestMemory = 0.9;
/// The test ends where the smoothed loss is this many times the least so far, or a loss is not finite.
inline constexpr double kRangeTestDiverged = 4.0;

struct RangeTest {
  std::vector<RangeTestPoint> points;  ///< until it diverged; all losses are finite
  bool diverged = false;
  /// Where the smoothed loss falls fastest over the logarithm of the rate, between a twentieth of the points before and
  /// after, before its minimum; the suggestion. None: it falls nowhere.
  std::optional<double> steepest;
  /// A tenth of the rate at the smoothed loss's minimum: the more careful rule. None without points.
  std::optional<double> tenth_of_minimum;
};

/// The rate of update `update` of a test.
double range_test_rate(const RangeTestOptions& options, std::int64_t update);

/// Fills in `smoothed`, cuts what came after the divergence, and finds the two rates.
RangeTest read_range_test(std::vector<RangeTestPoint> points);

/// The largest loss that a drawing shows, so that the divergence does not hide the rest: the first smoothed loss, and
/// half of what it fell by. 0 without points.
double range_test_ceiling(const RangeTest& test);

/// Trains a fresh model of the configuration on its training data, batches as in a run, for `updates` updates;
/// schedule, callbacks and evaluation are left out. Nothing is written. The configuration is decided and has data.
/// Throws ConfigError for options out of range, and what run::train throws.
RangeTest range_test(const RunConfig& config, const RangeTestOptions& options);

}  // namespace bantam::run
