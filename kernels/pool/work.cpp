// Work of pooling: input and output once, and the winners' places.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/norm/norm_work.h"
#include "bantam/kernels/pool/norm_pool.h"
#include "bantam/kernels/pool/pool_relu.h"
#include "bantam/kernels/pool/pool_relu_parts.h"

namespace bantam::kernels::work {
namespace {

KernelWork pass(const Pool2dShape& s, DType dtype, const std::uint16_t* winner = nullptr) {
  return {.bytes = bytes_of(s.x_elements() + s.y_elements(), dtype) + unless_null(winner, 2 * s.y_elements())};
}

}  // namespace

void max_pool2d_forward(const Exec& exec, const Pool2dShape& s, DType dtype, const void*, void*,
                        std::uint16_t* winner) {
  note(exec, "max_pool2d_forward", pass(s, dtype, winner));
}
void max_pool2d_grad_input(const Exec& exec, const Pool2dShape& s, DType dtype, const void*,
                           const std::uint16_t* winner, void*) {
  note(exec, "max_pool2d_grad_input", pass(s, dtype, winner));
}
/// dy, y and winners to dz; where two kernels run, dy is written and read between them.
void max_pool2d_relu_grad(const Exec& exec, const Pool2dShape& s, DType dtype, const void*, const void*,
                          const std::uint16_t* winner, void*, float*, Workspace) {
  const bool one_pass = exec.device.is_cuda() && pools_pairs(s);
  KernelWork work = pass(s, dtype, winner);
  work.bytes += bytes_of((one_pass ? 1 : 3) * s.y_elements(), dtype) + 4 * s.channels;
  work.passes = one_pass ? 2 : 3;  // partial sums, and their sum
  note(exec, "max_pool2d_relu_grad", work);
}
void avg_pool2d_forward(const Exec& exec, const Pool2dShape& s, DType dtype, bool, const void*, void*) {
  note(exec, "avg_pool2d_forward", pass(s, dtype));
}
void avg_pool2d_grad_input(const Exec& exec, const Pool2dShape& s, DType dtype, bool, const void*, void*) {
  note(exec, "avg_pool2d_grad_input", pass(s, dtype));
}

void norm_pool_forward(const Exec& exec, const Pool2dShape& s, DType dtype, const NormOperand& x, void*, void* winner,
                       Workspace) {
  KernelWork work = pass(s, dtype);
  work.bytes +=
      norm_bytes(x, s.channels) + unless_null(winner, norm_pool_winner_bytes(exec.device.kind) * s.y_elements());
  note(exec, "norm_pool_forward", work);
}

/// CPU: dy and winners to dx, which lies between and is in the cache while x and it are summed; then x and dx for dx.
/// CUDA: x, dy and winners for the sums, and once more for dx.
void norm_pool_backward(const Exec& exec, const Pool2dShape& s, DType dtype, const NormOperand& x, const void*,
                        const void*, const NormGradients& to, Workspace) {
  const DeviceKind target = exec.device.kind;
  const bool cuda = target == DeviceKind::cuda;
  const std::int64_t full = bytes_of(s.x_elements(), dtype),
                     pooled = bytes_of(s.y_elements(), dtype) + norm_pool_winner_bytes(target) * s.y_elements();
  note(exec, "norm_pool_backward",
       {.bytes = (cuda ? 3 * full + 2 * pooled : 5 * full + pooled) + norm_bytes(x, s.channels) +
                 vector_bytes(s.channels, to.dscale, to.dshift) * (to.accumulate ? 2 : 1),
        .passes = cuda ? 2 : 3});
}

}  // namespace bantam::kernels::work
