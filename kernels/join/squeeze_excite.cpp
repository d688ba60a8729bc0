// Squeeze-and-excitation: how much scratch memory the gate's gradient needs.
#include "bantam/kernels/join/squeeze_excite_plan.h"

namespace bantam::kernels {

std::size_t squeeze_excite_workspace_bytes(const SqueezeExciteShape& shape) {
  return aligned_bytes(shape.samples * shape.channels * 4) + aligned_bytes(shape.samples * shape.units * 4);
}

}  // namespace bantam::kernels
