// The kernels of a device against their references: does this machine compute what the program's tests expect?
#pragma once

#include <string>
#include <vector>

#include "bantam/base/dtype.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam::run {

/// One kernel on random operands, compared with plain loops in float64.
struct KernelCheck {
  std::string kernel;
  DType dtype = DType::float32;
  double error = 0;      ///< |computed - expected| / |expected|, in the norm of all values
  double tolerance = 0;  ///< from the type's rounding, and the terms of the sums
  std::string failure;   ///< what the kernel threw, where it did

  bool passed() const { return failure.empty() && error <= tolerance; }
};

/// The kernels that networks spend their time in (matrix products, convolutions, batch norms, the loss) with their
/// gradients, in float32, float16 and bfloat16: less than a second on two CPU cores. Throws DeviceError where
/// there is no such device.
std::vector<KernelCheck> check_kernels(Runtime& runtime, Device device);

}  // namespace bantam::run
