// A GPU's profile, measured: overhead line by line, copy bandwidth and matrix rates.
#pragma once

#include "bantam/memory/device/device_profile.h"

namespace bantam::run {

/// Measures on an idle GPU, in some seconds and 1 GiB of its memory. The kernels' line is what a small convolutional
/// network's step loads. Throws DeviceError where the device does not exist or is no GPU, OutOfMemory where it is full.
DeviceProfile measure_profile(Device device);

}  // namespace bantam::run
