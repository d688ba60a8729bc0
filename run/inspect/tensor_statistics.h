// Statistics of the values of a tensor in host memory.
#pragma once

#include <cstdint>

#include "bantam/engine/train/safetensors.h"

namespace bantam::run {

/// Statistics of finite values, in float64; integers of more than 53 bits are rounded. All zero where there is none.
struct TensorStatistics {
  std::int64_t finite = 0, not_finite = 0;  ///< how many values
  std::int64_t zeros = 0;
  double min = 0, max = 0, mean = 0;
  double deviation = 0;  ///< standard deviation of the values as they are: the sum is divided by `finite`

  double zero_share() const {
    return finite + not_finite == 0 ? 0 : static_cast<double>(zeros) / static_cast<double>(finite + not_finite);
  }
};

TensorStatistics statistics_of(const HostTensor& tensor);

}  // namespace bantam::run
