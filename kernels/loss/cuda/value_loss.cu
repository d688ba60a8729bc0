// Losses of each value on CUDA: a warp a part of a sample.
#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/loss/cuda/loss_sums.cuh"
#include "bantam/kernels/loss/value_loss.h"

namespace bantam::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kLossWarps* kWarp)
    value_loss_kernel(ValueLossShape s, ValueLossInputs in, T* dx, LossTerms* parts) {
  const std::int64_t part = static_cast<std::int64_t>(blockIdx.x) * kLossWarps + threadIdx.x / kWarp;
  const std::int64_t parts_of_sample = loss_parts(s);
  if (part >= s.batch * parts_of_sample) return;
  const std::int64_t n = part / parts_of_sample, first = part % parts_of_sample * kValuesOfPart;
  const std::int64_t last = min(first + kValuesOfPart, s.values), sample = n * s.values;
  const float scale = term_scale(in.scale, s.values);
  float loss = 0;  // of at most 32 values
  LossTerms terms;
  for (std::int64_t i = first + threadIdx.x % kWarp; i < last; i += kWarp) {
    const ValueTerm term =
        value_term(s, in, to_float(static_cast<const T*>(in.x)[sample + i]), in.targets[sample + i], i);
    loss += term.loss;
    terms.right += term.right ? 1 : 0;
    ++terms.counted;
    if (dx != nullptr) dx[sample + i] = from_float<T>(term.slope * scale);
  }
  terms.loss = static_cast<double>(loss);
  terms = warp_terms(terms);
  if (threadIdx.x % kWarp == 0) parts[part] = terms;
}

}  // namespace

void value_loss(const Exec& exec, const ValueLossShape& s, DType dtype, const ValueLossInputs& in,
                const LossOutputs& out, Workspace workspace) {
  require_workspace(workspace, value_loss_workspace_bytes(s), "value_loss");
  const LossSumsLayout layout{s.batch, loss_parts(s)};
  WorkspaceCutter cutter(workspace);
  const LossSumsMemory memory(layout, cutter);
  if (s.batch > 0) {
    dispatch_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      value_loss_kernel<<<warp_blocks(s.batch * layout.parts), kLossWarps * kWarp, 0, stream_of(exec)>>>(
          s, in, static_cast<T*>(out.dx), memory.parts);
      check_launch("value_loss_kernel");
    });
  }
  launch_loss_sums(exec, layout, memory, in.scale, out);
}

}  // namespace bantam::kernels::cuda
