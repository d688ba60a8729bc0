// DeviceSums: where losses and metrics add up what they count, on the device, until the host reads it.
#pragma once

#include <cstdint>
#include <span>

#include "bantam/engine/autograd/context.h"

namespace bantam {

/// A ring of float64 sums in device memory, `count` a slot, one slot an update: element i of the update under way is
/// ring[*slot·count + i]. Kernels read the slot themselves: steps that are recorded once run with another each time.
struct DeviceSums {
  double* ring = nullptr;              ///< null: nothing is counted
  const std::int32_t* slot = nullptr;  ///< device memory; null: 0
};

/// Adds `values`, of which there are `count`, to the sums: for what is counted on the host. On a CUDA device it copies,
/// and waits for the stream, so it throws DeviceError while steps are recorded, which then run planned instead. Does
/// nothing on a meta device, and without a ring.
void add_to_sums(const Context& context, const DeviceSums& sums, std::span<const double> values);

}  // namespace bantam
