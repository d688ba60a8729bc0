// The architecture that the running device code was compiled for: it may be older than the device's own.
#pragma once

namespace bantam::kernels::cuda {

/// The architecture of the code that the current device runs, as __CUDA_ARCH__ counts it: 900 for 9.0. Below the
/// device's own where only older code was there to be made into its instructions, so that what the code guards by
/// __CUDA_ARCH__ is what this says. Throws DeviceError.
int code_architecture();

}  // namespace bantam::kernels::cuda
