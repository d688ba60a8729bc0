// Where a kernel writes the gradient of a parameter.
#pragma once

namespace bantam::kernels {

struct ParameterTarget {
  float* data = nullptr;    ///< the parameter's shape, float32; null: the gradient is not wanted
  bool accumulate = false;  ///< added to what `data` holds, instead of overwriting it
};

}  // namespace bantam::kernels
