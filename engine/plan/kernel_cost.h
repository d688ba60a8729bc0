// The seconds of one kernel call by a roofline, from the work that its contract tells (kernel_log.h).
#pragma once

#include <string>

#include "bantam/engine/runtime/runtime.h"
#include "bantam/kernels/common/kernel_log.h"
#include "bantam/memory/device/device.h"
#include "bantam/memory/device/device_profile.h"

namespace bantam {

/// The rates of memory traffic and arithmetic that a device sustains on large tensors.
struct DeviceRates {
  double bytes_per_s = 1;
  double flops_per_s = 1;
  bool estimate = false;  ///< the profile's are estimates, so predicted seconds have kEstimateShare of doubt
};

/// Predicted times on a device that nobody measured may be off by this share of themselves, either way: kernels of a
/// kind reach 0.58 to 1.00 of the H200's rates (kernel_cost.cpp), about 0.8 ± 0.2 in the mean, attention 0.2 of the
/// rate of operations, and what they reach on another card is not known.
inline constexpr double kEstimateShare = 0.4;

/// A predicted share of a step's time as a text, "+8.8 %" of 0.088; of an estimate "+8.8 ± 3.5 %".
std::string predicted_percent(double share, bool estimate, int decimals = 1);

/// Those of a profile (device_profile.h) in this precision, and of the device's own profile.
DeviceRates typical_rates(const DeviceProfile& profile, Precision precision);
DeviceRates typical_rates(Device device, Precision precision);

/// A call costs the start and end of its kernels, and the longer of the times for its bytes and for its operations, at
/// the shares of the device's rates that their kind reaches. The constants, and what they were fitted to, are in
/// kernel_cost.cpp.
double predict_seconds(const kernels::KernelWork& work, const DeviceRates& rates);

/// The sum over a log: kernels of a step run one after another.
double predict_seconds(const kernels::KernelLog& log, const DeviceRates& rates);

}  // namespace bantam
