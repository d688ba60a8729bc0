// StepLimits: a measured step beside the least time that the device's measured rates allow it.
#pragma once

#include <optional>
#include <string>

#include "bantam/run/bench/measure.h"

namespace bantam::run {

/// Rates of one device in one precision, measured in the same call as the steps.
struct MeasuredRates {
  double copy_bytes_per_s = 0;
  double flops_per_s = 0;
  double kernel_seconds = 0;
};

/// In a runtime of its own, without the configuration's limits; nothing where there is no memory for it.
std::optional<MeasuredRates> measure_rates(const RunConfig& config, Precision precision, int threads);

/// The longest of three: the bytes a step must move over the copy rate, its operations over the products' rate, and its
/// kernels (where it is captured, and they are counted) over what one adds to a chain.
struct StepLimits {
  double bytes_ms = 0, flops_ms = 0, chain_ms = 0;

  double floor_ms() const;
  /// "bytes", "flops" or "chain".
  const char* bound() const;
};

StepLimits step_limits(const RunConfig& config, const StepCase& row, const StepMeasurement& measured,
                       const MeasuredRates& rates);

}  // namespace bantam::run
