// Global response normalisation: its scratch memory, and the work of its calls.
#include "bantam/kernels/norm/global_response_norm.h"

#include "bantam/kernels/common/work.h"
#include "bantam/kernels/norm/group_norm_parts.h"

namespace bantam::kernels {

/// Two sums a sample, part and channel; of each sample and channel the factor of x in dx and two terms of the gradients
/// of scale and shift; on the CPU their totals.
std::size_t global_response_workspace_bytes(const GroupNormShape& s, DeviceKind target) {
  if (s.elements() <= 0) return 0;
  const std::int64_t vectors = s.samples * (2 * position_parts(s, target) + 3) + (target == DeviceKind::cuda ? 0 : 2);
  return static_cast<std::size_t>(vectors * s.channels) * sizeof(float);
}

namespace work {
namespace {

std::int64_t statistics_bytes(const GroupNormShape& s) { return 4 * s.samples * (s.channels + 1); }

}  // namespace

/// x for its norms, which end in a kernel of their own; then x and y.
void global_response_forward(const Exec& exec, const GroupNormShape& s, DType dtype, const ResponseOperand&,
                             const ResponseStatistics&, void* y, Workspace) {
  const bool written = y != nullptr;
  note(exec, "global_response_forward",
       {.bytes = (written ? 3 : 1) * bytes_of(s.elements(), dtype) + statistics_bytes(s) +
                 (written ? 2 * 4 * s.channels : 0),
        .passes = written ? 3 : 2});
}

void global_response_apply(const Exec& exec, const GroupNormShape& s, DType dtype, const ResponseOperand&, void*) {
  note(exec, "global_response_apply",
       {.bytes = 2 * bytes_of(s.elements(), dtype) + statistics_bytes(s) + 2 * 4 * s.channels});
}

/// x and dy for the sums, which end in a kernel of their own, as those of all samples do; then x, dy and dx.
void global_response_backward(const Exec& exec, const GroupNormShape& s, DType dtype, const ResponseOperand&,
                              const void*, const NormGradients& to, Workspace) {
  const bool written = to.dx != nullptr, summed = to.dscale != nullptr || to.dshift != nullptr;
  note(exec, "global_response_backward",
       {.bytes = (written ? 5 : 2) * bytes_of(s.elements(), dtype) + statistics_bytes(s) + 4 * s.channels +
                 gradient_bytes(to.dscale, to.accumulate, s.channels) +
                 gradient_bytes(to.dshift, to.accumulate, s.channels),
        .passes = (written ? 3 : 2) + (summed ? 1 : 0)});
}

}  // namespace work
}  // namespace bantam::kernels
