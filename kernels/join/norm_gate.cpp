// A norm before squeeze-and-excitation: which norms, and how much scratch memory the kernels need.
#include "bantam/kernels/join/norm_gate.h"

#include "bantam/kernels/elementwise/piecewise.h"
#include "bantam/kernels/join/norm_gate_plan.h"

namespace bantam::kernels {

bool norm_gate_supports(std::int64_t channels, ActivationFunction f) {
  const bool supported = is_piecewise(f.kind) || f.kind == Activation::silu || f.kind == Activation::hard_swish;
  return channels > 0 && channels % 8 == 0 && supported;
}

std::size_t norm_gate_workspace_bytes(const ChannelScaleShape& s, DeviceKind target) {
  const std::int64_t parts = norm_gate_parts(s, target);
  const std::int64_t partials = parts > 1 ? kNormGateSums * s.factors() * parts : 0;
  return aligned_bytes(4 * kNormGateVectors * s.channels) + aligned_bytes(4 * partials);
}

}  // namespace bantam::kernels
